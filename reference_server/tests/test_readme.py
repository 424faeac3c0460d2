"""What the README shows works, and the tables there are the flags there are."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from utterwire_server import cli
from utterwire_server.engines import ToneEngine, load_engine
from utterwire_server.service import Service
from utterwire_server.settings import Settings

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


async def test_an_engine_of_ones_own(
    start: Any, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(# my_engine.*?)```", README, re.DOTALL)
    (tmp_path / "my_engine.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        peer = await connect(await start(load_engine("my_engine:HumEngine")))
    finally:
        sys.modules.pop("my_engine", None)
    peer.say(text="Hum.")
    done = await peer.until("synthesis_complete")
    assert done["audio_bytes"] == 4 * 960 * 2


def test_the_endpoint_for_piper_is_the_example() -> None:
    example = README.partition("endpoint for Piper](")[2].partition(")")[0]
    source = (Path(__file__).parent.parent / example).read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import sys.*?)```", README, re.DOTALL)
    assert source.endswith(code)


@pytest.mark.parametrize(
    ("section", "flags"),
    [("## Flags", cli._flags()), ("## What a machine can do", cli._bench_flags())],
)
def test_each_flag_is_told_with_its_default(section: str, flags: tuple[cli._Flag, ...]) -> None:
    table = README.partition(f"{section}\n")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `--([a-z-]+)` \| ([^|]+) \|", table, re.MULTILINE))
    defaults = {name: default for name, _, default, _ in flags}
    assert set(told) == set(defaults)
    for name, default in defaults.items():
        if not isinstance(default, frozenset):
            shown = "the engine's first" if name == "voice" else cli._shown(default)
            assert told[name].strip() == shown, name


async def test_each_metric_is_told() -> None:
    metrics = Service(Settings(), ToneEngine()).metrics
    assert metrics is not None
    there = {
        family.name if family.type != "counter" else f"{family.name}_total"
        for family in metrics.registry.collect()
        if family.name.startswith("utterwire")
    }
    table = README.partition("## Metrics")[2].partition("An utterance is")[0]
    told = set(re.findall(r"`(utterwire_\w+)[`{]", table))
    assert told == {"utterwire_info" if name == "utterwire" else name for name in there}
