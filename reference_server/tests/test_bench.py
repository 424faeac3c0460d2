"""`utterwire-server bench`: the search, the result and its schema, and one line for mistakes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from utterwire_server import bench, cli
from utterwire_server.bench import SCHEMA, Bench, BenchFailed, Load, capacity, percentile, table
from utterwire_server.engines import Block, Engine, FaultyEngine, SpeechRequest, ToneEngine
from utterwire_server.service import Service
from utterwire_server.settings import Settings


def load(listeners: int, carried: bool) -> Load:
    return Load(listeners, 1, 0.1, 0.1, 0 if carried else 1, 0.0, 0, 0.5, carried)


@given(st.integers(0, 40), st.integers(1, 40))
def test_the_search_finds_the_most_that_are_carried(limit: int, most: int) -> None:
    async def measure(listeners: int) -> Load:
        assert 1 <= listeners <= most
        return load(listeners, listeners <= limit)

    loads = asyncio.run(capacity(measure, most))
    found = max((it.listeners for it in loads if it.carried), default=0)
    assert found == min(limit, most)
    # What is not carried is tried twice, and nothing more than that.
    assert len(loads) <= 4 * (most.bit_length() + 1)


async def test_a_hiccup_of_the_machine_decides_nothing() -> None:
    hiccups = {3}

    async def measure(listeners: int) -> Load:
        carried = listeners <= 3 and listeners not in hiccups
        hiccups.discard(listeners)
        return load(listeners, carried)

    loads = await capacity(measure, 8)
    assert max(it.listeners for it in loads if it.carried) == 3


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.95, 0.0), ([3.0], 0.5, 3.0), ([1, 2, 3, 4], 0.5, 2), (list(range(1, 101)), 0.95, 95)],
)
def test_percentiles(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is spoken, so that it takes no longer than it must."""
    monkeypatch.setattr(bench, "SENTENCES", ("Hello there.",))
    monkeypatch.setattr(bench, "REPEATS", 2)
    for variable in [name for name in os.environ if name.startswith("UTTERWIRE_")]:
        monkeypatch.delenv(variable)


@pytest.mark.usefixtures("brief")
def test_a_run_as_table_and_as_json(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    flags = ["--rtf", "0.3", "--max-listeners", "1", "--step-seconds", "0.2", "--voice", "bass"]
    flags += ["--goal-first-byte", "60", "--json", str(path)]
    assert cli.main(["bench", *flags]) == 0
    told = capfd.readouterr()
    result = json.loads(path.read_text())
    assert told.out.strip() == table(result)
    assert "listeners at once" in told.out
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(result)
    assert result["engine"]["name"] == "tone"
    assert result["engine"]["voice"] == "bass"
    assert result["engine"]["options"]["rtf"] == 0.3
    assert result["real_time_factor"] >= 0.3
    assert result["alone"][0]["speech_s"] == pytest.approx(0.44)
    assert result["capacity"]["loads"][0]["utterances"] >= 1
    assert result["cold_start_s"] <= result["process_start_s"]


@pytest.mark.usefixtures("brief")
def test_json_alone_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-listeners", "1", "--step-seconds", "0.1", "--json", "-"]
    assert cli.main(["bench", *flags, "--goal-first-byte", "60"]) == 0
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(
        json.loads(capfd.readouterr().out)
    )


class DryEngine(Engine):
    """Leaves each listener without sound in mid-sentence."""

    name = "dry"
    voices = ("one",)
    sample_rates = (24_000,)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        async for block in ToneEngine().synthesize(
            SpeechRequest("Hm.", "alto", request.speed, request.sample_rate)
        ):
            yield block
            await asyncio.sleep(0.2)


@pytest.mark.usefixtures("brief")
async def test_who_runs_dry_is_not_carried() -> None:
    service = Service(Settings(shutdown_timeout_s=0.0), DryEngine())
    lines: list[str] = []
    result = await Bench(
        service, "one", step_s=0.1, most=4, goal_s=60.0, progress=lines.append
    ).run()
    assert result["capacity"]["listeners"] == 0
    assert [it["carried"] for it in result["capacity"]["loads"]] == [False, False]
    assert all(it["underruns"] and it["starved_s"] > 0 for it in result["capacity"]["loads"])
    assert lines[-1].endswith("too many")


class Unstartable(ToneEngine):
    async def start(self) -> None:
        raise RuntimeError("no weights")


class Mute(ToneEngine):
    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[Block]:
        return
        yield


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Unstartable(), "engine 'tone' could not be started"),
        (FaultyEngine(1), "engine 'faulty' did not speak: synthesis_failed"),
        (Mute(), "it made no audio"),
    ],
)
async def test_an_engine_that_cannot_be_measured(engine: Engine, words: str) -> None:
    service = Service(Settings(shutdown_timeout_s=0.0), engine)
    with pytest.raises(BenchFailed, match=words):
        await Bench(service, engine.voices[0], progress=lambda _: None).run()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["bench", "--voice", "nobody"], "engine 'tone' has no voice 'nobody'"),
        (["bench", "--max-listeners", "0"], "--max-listeners is 0"),
        (["bench", "--step-seconds", "0"], "--step-seconds is 0"),
        (["bench", "--goal-first-byte", "nan"], "--goal-first-byte is nan"),
        (["bench", "--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        (["bench", "--no-such-flag"], "unrecognized arguments"),
        (["--rtf", "0", "bench"], "bench comes before its flags"),
        (["--voice=alto"], "unrecognized arguments: --voice"),
    ],
)
def test_a_mistake_is_one_line(
    capfd: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert cli.main(flags) == 2
    told: Any = capfd.readouterr()
    assert told.err.count("\n") == 1
    assert words in told.err
