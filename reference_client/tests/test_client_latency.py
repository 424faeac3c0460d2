"""`utterwire latency`: a conversation's times, as table, JSON and page."""

import asyncio
import copy
import io
import json
import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from utterwire_client import Audio, Complete, IncrementalSentenceChunker, Marks, Start
from utterwire_client.cli import ExitCode, main
from utterwire_client.cli.latency import table
from utterwire_client.sentence import Sentence, Skipped, Spoken
from utterwire_client.utterance import Inbox as Arrivals
from utterwire_client.utterance import Request
from utterwire_client.waterfall import Waterfall
from utterwire_client.waterfall_page import waterfall_page
from utterwire_schemas import validator

Serve = Callable[..., Awaitable[str]]
TEXT = "Here is the first one. And here is the second one."
# A tenth of a second of silence, and then a loud square wave.
ONE = b"\0\0" * 2400 + (b"\0\x40" * 12 + b"\0\xc0" * 12) * 400


async def speaking(peer: Any) -> None:
    for seq in (1, 2):
        await peer.next("synthesize")
        await peer.speak(seq, ONE[:6000], ONE[6000:], elapsed_s=0.05)
    await peer.say_goodbye()


@pytest.fixture
def latency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTTERWIRE_ENDPOINTS", raising=False)

    async def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = await asyncio.to_thread(main, ["latency", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


async def test_all_three_forms(endpoint: Serve, latency: Any, tmp_path: Path) -> None:
    url = await endpoint(speaking) + "/?token=secret"
    options = ("--json", "a.json", "--html", "a.html", "--rate", "2000", "--voice", "v")
    code, out, err = await latency(TEXT, "--url", url, *options)
    assert (code, err) == (0, "")
    document = json.loads((tmp_path / "a.json").read_text("utf-8"))
    validator("latency").validate(document)
    first, second = document["sentences"]
    assert [row["text"] for row in (first, second)] == TEXT.replace(". ", ".\n").splitlines()
    assert document["options"] == {
        "transport": "websocket",
        "depth": 3,
        "pieces_per_s": 2000,
        "voice": "v",
        "lead_s": 0,
    }
    for row in (first, second):
        moments = [row[f"{name}_s"] for name in ("text_began", "text_ready", "sent", "first_byte")]
        assert moments == sorted(moments)
        assert row["first_byte_s"] <= row["heard_s"]
        assert row["first_sound_s"] - row["first_byte_s"] == pytest.approx(0.1, abs=0.006)
        # Its second chunk may come late.
        lasted_s = len(ONE) / 48000 + row["stall_s"]
        assert row["heard_to_s"] - row["heard_s"] == pytest.approx(lasted_s, abs=1e-5)
        assert (row["audio_bytes"], row["chunks"]) == (len(ONE), 2)
    assert second["heard_s"] == pytest.approx(first["heard_to_s"] + second["gap_s"], abs=1e-5)
    summary = document["summary"]
    assert summary["first_byte_s"] == pytest.approx(
        first["first_byte_s"] - first["sent_s"], abs=1e-5
    )
    assert summary["real_time_factor"] == pytest.approx(0.1 / summary["audio_s"], abs=1e-5)
    assert "Here is the first one." in out
    assert "real-time factor" in out
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "secret" not in page + out + json.dumps(document)


async def test_stdin_as_it_comes_and_json_alone(endpoint: Serve, latency: Any) -> None:
    url = await endpoint(speaking)
    code, out, err = await latency("-", "--url", url, "--json", "-", stdin=TEXT.encode())
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["options"]["pieces_per_s"] is None
    assert document["endpoint"]["name"] == document["endpoint"]["url"]


async def test_the_page_on_stdout(endpoint: Serve, latency: Any, tmp_path: Path) -> None:
    code, out, err = await latency(TEXT, "--url", await endpoint(speaking), "--html", "-")
    assert (code, err) == (0, "")
    assert out.startswith("<!doctype html>")
    assert out.endswith("</html>\n")
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("x", "--file", "y"), ExitCode.USAGE, "not both"),
        (("x", "--json", "-", "--html", "-"), ExitCode.USAGE, "only one of --json and --html"),
        (("--file", "none.txt"), ExitCode.USAGE, "cannot read none.txt"),
        (("--rate", "0"), ExitCode.USAGE, "--rate"),
        (("--rate", "nan"), ExitCode.USAGE, "--rate"),
        (("--depth", "0"), ExitCode.USAGE, "depth is 0"),
        (("...",), ExitCode.USAGE, "there is nothing to speak"),
        (("",), ExitCode.USAGE, "there is no text"),
        ((TEXT, "--json", "no/where.json"), ExitCode.USAGE, "cannot write no/where.json"),
        (("x", "--url", "ws://127.0.0.1:1"), ExitCode.NO_CONNECTION, "nothing listens"),
    ],
)
async def test_what_cannot_be_done(
    endpoint: Serve, latency: Any, arguments: tuple[str, ...], code: ExitCode, words: str
) -> None:
    async def script(peer: Any) -> None:
        if TEXT in arguments:
            await speaking(peer)
        await peer.gone()

    if "--url" not in arguments:
        arguments = (*arguments, "--url", await endpoint(script))
    if "--rate" not in arguments:
        arguments = (*arguments, "--rate", "inf")
    got, out, err = await latency(*arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


async def test_a_file_that_is_not_utf8(latency: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xff")
    code, _, err = await latency("--file", "a.txt")
    assert code == ExitCode.USAGE
    assert "not UTF-8 (byte 1)" in err


async def test_an_endpoint_that_rejects(endpoint: Serve, latency: Any) -> None:
    async def script(peer: Any) -> None:
        await peer.next()
        await peer.error(1, "invalid_voice", rejected=True)
        await peer.gone()

    code, _, err = await latency("Hello.", "--url", await endpoint(script))
    assert (code, err.count("\n")) == (ExitCode.REJECTED, 1)


# -- the figures, by a clock of one's own


class Inbox:
    def __init__(self, submitted_at: float, first_audio_at: float | None) -> None:
        self.submitted_at = submitted_at
        self.first_audio_at = first_audio_at


class Asked:
    def __init__(self, *times: Any) -> None:
        self.inbox = Inbox(*times)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


PCM = Start(1000, "pcm_s16le", "v")


async def played(form: str = "pcm_s16le") -> dict[str, Any]:
    """Two sentences of a second, the second of which comes 0.5 s late, and halts for 0.25 s."""
    clock = Clock()
    waterfall = Waterfall(IncrementalSentenceChunker(), clock=clock)
    start = Start(1000, form, "v")

    async def hear(sentence: Sentence, asked: Any, event: Any) -> None:
        if isinstance(event, Audio):
            await waterfall.player.play(event.data, start)
        waterfall.take(Spoken(sentence, asked, event))

    pieces = []
    for text, clock.now in (("Here it is.", 100.0), (" And", 100.1), (" then", 100.2)):
        pieces += waterfall.chunker.feed(text)
    pieces += waterfall.chunker.feed(" it was.")
    clock.now = 100.3
    pieces += waterfall.chunker.flush()
    assert pieces == ["Here it is.", " And then it was."]
    first, second = (Sentence(i, 0, text, text.strip()) for i, text in enumerate(pieces))
    asked = Asked(100.25, 100.5)
    clock.now = 100.5
    for event in (start, Audio(b"\1\0" * 1000), Marks(()), Complete(2000, 1.0, 0.1)):
        await hear(first, asked, event)
    waterfall.take(Skipped(first, "unspeakable"))
    asked = Asked(100.35, 102.0)
    clock.now = 102.0
    await hear(second, asked, start)
    await hear(second, asked, Audio(b"\1\0" * 500))
    clock.now = 102.75
    await hear(second, asked, Audio(b"\1\0" * 500))
    await hear(second, asked, Complete(2000, 1.0, 0.3))
    document = waterfall.document(
        made_by="test", endpoint={"name": "e"}, options={"transport": "http"}
    )
    validator("latency").validate(document)
    return document


async def test_gaps_and_stalls() -> None:
    document = await played()
    first, second = document["sentences"]
    assert (first["text_began_s"], first["text_ready_s"]) == (0, pytest.approx(0.1))
    assert (second["text_began_s"], second["text_ready_s"]) == (
        pytest.approx(0.1),
        pytest.approx(0.3),
    )
    assert (first["sent_s"], first["first_byte_s"], first["heard_s"]) == (0.25, 0.5, 0.5)
    assert (first["gap_s"], second["gap_s"], second["stall_s"]) == (0, 0.5, 0.25)
    assert (second["heard_s"], second["heard_to_s"]) == (2.0, 3.25)
    assert first["first_sound_s"] is None  # it never became loud
    summary = document["summary"]
    assert summary == {
        "first_byte_s": 0.25,
        "first_sound_s": None,
        "heard_s": 0.5,
        "gaps": 1,
        "gap_s": 0.5,
        "stall_s": 0.25,
        "audio_s": 2.0,
        "duration_s": 2.75,
        "real_time_factor": 0.2,
    }
    shown = table(document)
    assert "1 gap, 500.0 ms in all, 250.0 ms of stalls" in shown
    assert re.search(r"^2 +300\.0 +350\.0 +2000\.0 +\? +2000\.0 +500\.0  And then", shown, re.M)


async def test_a_format_whose_bytes_tell_no_length() -> None:
    document = await played("mp3")
    first, second = document["sentences"]
    assert (first["audio_s"], first["heard_to_s"]) == (1.0, 1.5)
    assert second["audio_s"] == 1.0


async def test_when_an_utterance_was_asked_for_and_first_heard_of() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    arrived = Arrivals(Request("x"), taken=lambda: None)
    asked = loop.time()
    assert before <= arrived.submitted_at <= asked
    arrived.put(PCM)
    assert arrived.first_audio_at is None
    arrived.put(Audio(b"\1\0"))
    first = arrived.first_audio_at
    assert first is not None
    assert asked <= first <= loop.time()
    arrived.put(Audio(b"\1\0"))
    assert arrived.first_audio_at == first


def test_no_text() -> None:
    waterfall = Waterfall(IncrementalSentenceChunker())
    with pytest.raises(ValueError, match="there is no text"):
        waterfall.document(made_by="x", endpoint={"name": "e"}, options={"transport": "x"})


# -- the page

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\"&"


async def hostile() -> dict[str, Any]:
    document = copy.deepcopy(await played())
    for row in document["sentences"]:
        row["text"] = HOSTILE + "x" * 500
    document["endpoint"] = {"name": HOSTILE.replace("@", ""), "url": HOSTILE}
    document["made_by"] = HOSTILE
    return document


class Reader(HTMLParser):
    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href")
            if name == "style":
                numbers = [float(n) for n in re.findall(r"[\d.]+(?=%)", value or "")]
                assert sum(numbers) <= 100.01

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


async def test_the_page_is_whole_and_harmless() -> None:
    reader = Reader()
    reader.feed(waterfall_page(await hostile()))
    assert reader.open == []
    assert not reader.tags & {"script", "img", "link"}


async def test_a_page_of_nothing() -> None:
    document = {**await played(), "sentences": [], "audio": None}
    Reader().feed(waterfall_page(document))


@pytest.mark.slow
def test_in_chromium(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium")
    page_file = tmp_path / "a.html"
    page_file.write_text(waterfall_page(asyncio.run(hostile())), encoding="utf-8")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        for width, scheme in ((390, "light"), (390, "dark"), (1400, "light"), (1400, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            complaints: list[str] = []
            asked: list[str] = []
            page.on("console", lambda message, told=complaints: told.append(message.text))
            page.on("request", lambda request, told=asked: told.append(request.url))
            page.goto(page_file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert page.evaluate("window.hacked") is None
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(22, 24, 28)") == (scheme == "dark")
            assert page.evaluate("document.querySelectorAll('.lane i').length") >= 6
            assert complaints == []
            assert asked == [page_file.as_uri()]
        browser.close()
