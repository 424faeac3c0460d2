"""`utterwire latency --browser` in a real Chromium, on the reference server.

How fast it is says more of the machine than of the code: what is looked at is that every sample
that came was rendered, and that all there is to tell was told.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from utterwire_client.cli import ExitCode, main
from utterwire_client.errors import UtterwireError
from utterwire_client.listening.chromium import Chromium
from utterwire_schemas import validator

pytestmark = pytest.mark.slow

ANSWERS = f"""
[[answer]]
name = "whole"
text = ["Good day.", 0.2, "Is it you? It is!"]
[[answer]]
name = "cut"
text = "{"This goes on and on. " * 60}"
interrupt_after_s = 0.2
"""


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("playwright", reason="needs playwright")
    pytest.importorskip("uvicorn", reason="the extra `browser` is not installed")
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        pytest.skip("needs Chromium")


@pytest.fixture
def measured(
    reference_program: Callable[[float], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers.toml").write_text(ANSWERS, encoding="utf-8")
    options = ["--answers", "answers.toml", "--repeat", "1", "--json", "a.json", "--rate", "200"]
    options += ["--trace", "trace.json"]
    url = reference_program(0.05)
    code = main(["latency", "--browser", "--url", url, *options, "--html", "a.html"])
    out, err = capsys.readouterr()
    assert code == ExitCode.DONE, err
    assert "8 of 8 runs" in out
    assert json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    document: dict[str, Any] = json.loads((tmp_path / "a.json").read_text("utf-8"))
    return document


def test_answers_are_heard_to_the_sample(measured: dict[str, Any]) -> None:
    validator("latency").validate(measured)
    assert measured["left_out"] == []
    assert measured["browser"]["sample_rate"] == 24_000
    for group in measured["heard"]:
        assert (group["count"], group["exact"], group["failures"]) == (1, 1, [])
        (run,) = group["runs"]
        assert 0 < run["first_byte_s"] <= run["first_sound_s"]
        assert 0 < run["heard_s"] < run["heard_to_s"]
        assert run["byte_to_heard_s"] > 0
        if group["answer"] == "whole":
            assert run["silence_s"] is None
        else:
            # It was cut: the whole of it takes a minute.
            assert run["silence_s"] > 0
    # A pause lets one wait for the end of the text.
    whole = {it["way"]["ask"]: it["runs"][0] for it in measured["heard"] if it["answer"] == "whole"}
    assert whole["batch"]["heard_s"] > 0.2


async def test_a_page_that_is_not_there() -> None:
    program = Path(shutil.which("chromium") or shutil.which("chromium-browser") or "")
    with pytest.raises(UtterwireError, match=r"failed: .*net::ERR_"):
        async with Chromium.open(program, "http://127.0.0.1:19/"):
            pass


async def test_a_program_that_is_no_browser(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(UtterwireError, match=r"^chromium failed: "):
        await asyncio.wait_for(_opened(program), 60)


async def _opened(program: Path) -> None:
    async with Chromium.open(program, "about:blank"):
        pass
