"""`utterwire latency --browser` without a browser: answers, arithmetic, pages, what is served."""

import asyncio
import base64
import copy
import io
import json
import re
import sys
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from utterwire_client.cli import ExitCode, listen, main
from utterwire_client.cli.listen import agreement_table, heard_table
from utterwire_client.endpoints import Endpoint
from utterwire_client.errors import ExtraMissing, RequestInvalid
from utterwire_client.listening import site as served
from utterwire_client.listening.answer import STANDARD, Answer, read_answers
from utterwire_client.listening.chromium import find_chromium
from utterwire_client.listening.comparison import compare, read_measurement
from utterwire_client.listening.figures import FIGURES, Figures, spread_of
from utterwire_client.listening.heard_page import heard_page
from utterwire_client.listening.recording import Recording, Run, run_of
from utterwire_client.listening.series import WAYS, Series, Way
from utterwire_client.listening.site import Site
from utterwire_player import modules
from utterwire_schemas import validator
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

Serve = Callable[..., Awaitable[str]]
Reading = asyncio.StreamReader
Writing = asyncio.StreamWriter
RATE = 24_000

# -- answers


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "answers.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_answers_of_a_file(tmp_path: Path) -> None:
    text = """
    [[answer]]
    name = "one"
    text = "Hello."
    [[answer]]
    text = ["Wait.", 1, "Here it is."]
    interrupt_after_s = 0.5
    """
    assert read_answers(written(tmp_path, text)) == (
        Answer("one", ("Hello.",)),
        Answer("answer 2", ("Wait.", 1.0, "Here it is."), 0.5),
    )


ONE = '[[answer]]\nname = "a"\ntext = "Hello."\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "wants tables"),
        ("answer = 3", "wants tables"),
        ("answer = [3]", "write [[answer]]"),
        (ONE + "[other]", "nothing else"),
        ("[[answer]", "is not TOML"),
        (b"\xff", "is not TOML"),
        ("a = " + "[" * 5000, "nested too deeply"),
        (ONE + ONE, "two answers have the name 'a'"),
        (ONE * 51, "50 are the most"),
        ("[[answer]]\nname = 3\ntext = 'x'", "name wants a text"),
        ("[[answer]]\nname = ' '\ntext = 'x'", "name wants a text"),
        ("[[answer]]\nname = 'a'", "a: text wants"),
        ("[[answer]]\nname = 'a'\ntext = []", "a has nothing to speak"),
        ("[[answer]]\nname = 'a'\ntext = [1.0, '...']", "a has nothing to speak"),
        ("[[answer]]\nname = 'a'\ntext = ['x', true]", "neither a string nor a pause"),
        ("[[answer]]\nname = 'a'\ntext = ['x', -1]", "neither a string nor a pause"),
        ("[[answer]]\nname = 'a'\ntext = ['x', nan]", "neither a string nor a pause"),
        (ONE + "interrupt_after_s = 'soon'", "interrupt_after_s wants seconds"),
        (ONE + "speed = 2", "'speed', which is not known"),
    ],
)
def test_what_is_no_file_of_answers(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_answers(written(tmp_path, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_of_answers(tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match="cannot read"):
        read_answers(tmp_path / "none")


# -- figures


def test_spreads() -> None:
    assert spread_of([None, None]) is None
    spread = spread_of([4.0, None, 1.0, 2.0, 3.0, 10.0])
    assert spread == {"median": 3, "q1": 2, "q3": 4, "least": 1, "most": 10, "count": 5}
    assert spread_of([0.5]) == {"median": 0.5, "q1": 0.5, "q3": 0.5, "least": 0.5, "most": 0.5} | {
        "count": 1
    }


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_spread_is_in_order(values: list[float]) -> None:
    spread = spread_of(values)
    assert spread is not None
    names = ("least", "q1", "median", "q3", "most")
    assert [spread[name] for name in names] == sorted(spread[name] for name in names)  # type: ignore[literal-required]


# -- one run


def floats(*samples: float) -> bytes:
    made = array("f", samples)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def coded(*samples: float) -> str:
    return base64.b64encode(floats(*samples)).decode()


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        (100, 106, (0, 1, 5)),
        (101, 106, (1, 5)),
        (103, 106, (5,)),
        (102, 105, ()),
        (104, 104, ()),
        (90, 200, (0, 1, 5, 6, 7)),
        (106, 101, ()),
    ],
)
def test_what_is_kept_of_a_recording(start: int, end: int, kept: tuple[float, ...]) -> None:
    # Holes may lie in each other.
    recording = Recording(100, floats(*range(8)), [[104, 105], [102, 105], [103, 104]])
    assert recording.between(start, end) == floats(*kept)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9))),
)
def test_what_is_kept_is_all_but_the_holes(
    start: int, end: int, holes: list[tuple[int, int]]
) -> None:
    recording = Recording(0, floats(*range(40)), [[at, at + length] for at, length in holes])
    missing = {frame for at, length in holes for frame in range(at, at + length)}
    wanted = [frame for frame in range(start, min(end, 40)) if frame not in missing]
    assert recording.between(start, end) == floats(*wanted)


@pytest.mark.parametrize(
    ("frame", "silent"), [(100, 104), (103, 104), (104, 104), (106, 106), (108, 108)]
)
def test_from_when_on_it_is_silent(frame: int, silent: int) -> None:
    # The second sample is the smallest there is: not zero.
    recording = Recording(100, floats(1, 1e-45, 0, -1, 0, 0, 0, 0), [])
    assert recording.silent_from(frame) == silent


def told(**changes: Any) -> dict[str, Any]:
    """What a page tells of an answer of six samples, the third of which came late."""
    sentence = {"first_byte_s": 0.5, "heard_s": 0.55, "heard_to_s": 0.9}
    summary = dict.fromkeys(("first_byte_s", "first_sound_s", "heard_s", "gap_s", "stall_s"), 0.1)
    return {
        "failure": None,
        "document": {
            "summary": summary | {"gaps": 1, "underruns": 1},
            "sentences": [{**sentence, "first_byte_s": None}, sentence],
        },
        "sample_rate": RATE,
        "skipped": 24,
        "recording": {
            "first": 1000,
            "samples": coded(0, 0, 0.1, 0.2, 0.18, 0.3, 0.4, 0.5, 0.6, 0),
            "holes": [[1004, 1005]],
        },
        "utterances": [
            {
                "samples": coded(0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
                "sample_rate": RATE,
                "begin": 1002,
                "end": 1009,
            }
        ],
        "interruption": None,
    } | changes


def test_a_run() -> None:
    run = run_of(told())
    assert run.exact is True
    assert run.figures == {
        "first_byte_s": 0.1,
        "first_sound_s": 0.1,
        "heard_s": 0.1,
        "byte_to_heard_s": 0.05,
        "heard_to_s": 0.9,
        "gaps": 1,
        "gap_s": 0.1,
        "underruns": 1,
        "stall_s": 0.1,
        "skipped_s": 0.001,
        "silence_s": None,
    }
    assert tuple(run.figures) == FIGURES


def interrupted(frame: int) -> dict[str, Any]:
    return {"clicked_at": 100.0, "frame": frame, "at": 110.0, "audible_at": 130.0}


@pytest.mark.parametrize(
    ("samples", "utterance", "interruption", "exact"),
    [
        ((0, 0, 0.1, 0.2, 0.18, 0.3, 0.4, 0.5, 0.7, 0), {}, None, False),
        ((0, 0, 0.1, 0.2, 0.18, 0.3, 0.4, 0.6, 0, 0), {}, None, False),
        (None, {"end": 1008}, None, False),
        (None, {"end": None}, None, False),
        # What was begun is a part of it; what was not is none.
        (None, {"end": None}, interrupted(1006), True),
        (None, {"begin": None, "end": None}, interrupted(1006), True),
        ((0, 0, 0.2, 0.2, 0.18, 0.3, 0, 0, 0, 0), {"end": None}, interrupted(1006), False),
        (None, {"sample_rate": 16_000}, None, None),
    ],
)
def test_whether_it_was_rendered_as_it_came(
    samples: tuple[float, ...] | None,
    utterance: dict[str, Any],
    interruption: dict[str, Any] | None,
    exact: bool | None,
) -> None:
    page = told(interruption=interruption)
    page["utterances"][0] |= utterance
    if samples is not None:
        page["recording"]["samples"] = coded(*samples)
    assert run_of(page).exact is exact


def test_both_zeros_are_zero() -> None:
    page = told()
    page["recording"]["samples"] = coded(0, 0, -0.0, 0.2, 0.2)
    page["recording"]["holes"] = []
    page["utterances"][0] |= {"samples": coded(0.0, 0.2), "end": 1004}
    assert run_of(page).exact is True


def test_silence_after_an_interruption() -> None:
    page = told(interruption=interrupted(1006))
    # Audible 30 ms after the click; three more samples sound.
    assert run_of(page).figures["silence_s"] == pytest.approx(0.030 + 3 / RATE, abs=1e-6)


# -- many runs


def figures(heard_s: float, **changes: float | None) -> Figures:
    made: Figures = {
        "first_byte_s": 0.02,
        "first_sound_s": 0.03,
        "heard_s": heard_s,
        "byte_to_heard_s": 0.04,
        "heard_to_s": heard_s + 1,
        "gaps": 0,
        "gap_s": 0,
        "underruns": 0,
        "stall_s": 0,
        "skipped_s": 0,
        "silence_s": None,
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def measured(
    *, late: float = 0.0, answers: tuple[Answer, ...] = STANDARD, **changes: float | None
) -> dict[str, Any]:
    series = Series(answers, list(WAYS.values()), 3)
    series.leave_out(WAYS["bidi-sse"], "it offers none")
    for turn in series.turns():
        begins = 0.3 if turn.way.ask == "bidi" else 2.5
        heard = begins + late + turn.number / 1000
        silence = None if turn.answer.interrupt_after_s is None else 0.04
        run = Run(figures(heard, silence_s=silence, **changes), True)
        if turn.number == 1:
            series.failed(turn, "it broke off")
        else:
            series.heard(turn, run)
    assert series.failures == 1
    document = series.document(
        made_by="test",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        endpoint={"name": "e", "url": "ws://e"},
        options={"pieces_per_s": 30, "voice": None, "lead_s": 0.02},
        browser={"name": "chromium", "version": "1", "sample_rate": 24000},
    )
    validator("latency").validate(document)
    return document


def test_turns_are_taken_in_rounds() -> None:
    series = Series(STANDARD[:2], [Way("bidi", "websocket"), Way("batch", "sse")], 2)
    series.leave_out(WAYS["batch-sse"], "no")
    found = [(it.number, it.of, it.answer.name, str(it.way)) for it in series.turns()]
    assert found == [
        (1, 4, "short", "bidi-websocket"),
        (2, 4, "long", "bidi-websocket"),
        (3, 4, "short", "bidi-websocket"),
        (4, 4, "long", "bidi-websocket"),
    ]


def test_what_is_told_of_many_runs() -> None:
    document = measured()
    assert document["started"] == "2026-01-01T00:00:00.000Z"
    assert len(document["heard"]) == 12
    first = document["heard"][0]
    assert (first["count"], first["exact"], first["failures"]) == (2, 2, ["it broke off"])
    assert first["figures"]["heard_s"]["count"] == 2
    assert first["figures"]["silence_s"] is None
    assert document["left_out"][0]["reason"] == "it offers none"
    shown = heard_table(document)
    assert "rendered as it came, sample for sample: 35 of 35 runs" in shown
    assert "left out: bidi-sse: it offers none" in shown
    assert re.search(r"^interrupted +batch-websocket .* 40\.0 \(40\.0-40\.0\) +3$", shown, re.M)


def test_nothing_that_the_schema_does_not_know() -> None:
    document = measured()
    for broken in (
        {key: value for key, value in document.items() if key != "heard"},
        {**document, "answers": []},
        {**document, "heard": [{**document["heard"][0], "way": {"ask": "x", "transport": "sse"}}]},
    ):
        assert not validator("latency").is_valid(broken)


# -- whether they agree


def saved(folder: Path, name: str, document: Mapping[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_measurements_that_agree() -> None:
    found = compare([measured(), measured(late=0.01), measured(late=0.02)])
    assert len(found) == 12 * 9 + 3
    assert all(each.agrees for each in found)
    shown = agreement_table(found)
    assert f"{len(found)} of {len(found)} medians lie within 10%" in shown
    assert "the widest of them, heard_s of 'long', bidi-websocket" in shown


def test_measurements_that_do_not_agree() -> None:
    found = compare([measured(), measured(late=0.05, stall_s=0.02), measured(late=0.1)])
    apart = {each.figure for each in found if not each.agrees}
    assert apart == {"heard_s", "stall_s"}
    # Of the answers that are heard late anyway, a tenth of a second is little.
    assert {each.way for each in found if each.figure == "heard_s" and not each.agrees} == {
        "bidi-websocket"
    }
    shown = agreement_table(found)
    assert re.search(r"^0 or not +stall_s of 'short', .* 0\.0 \(0\.0-0\.0\) ms, 20\.0", shown, re.M)
    assert re.search(r"^\d\d\.\d% +heard_s of 'long', bidi-websocket +3\d\d\.\d", shown, re.M)


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    one = measured()
    with pytest.raises(RequestInvalid, match="different answers"):
        compare([one, measured(answers=STANDARD[:1])])
    with pytest.raises(RequestInvalid, match="differ in pieces_per_s"):
        compare([one, {**one, "options": {**one["options"], "pieces_per_s": 5}}])
    with pytest.raises(RequestInvalid, match="no figure in common"):
        compare([one, {**one, "heard": []}])
    assert len(compare([one, {**one, "heard": one["heard"][:2]}])) == 18
    for text, words in (("{", "is not JSON"), ("[" * 9999, "is not JSON"), ("{}", "no measure")):
        path = tmp_path / "a.json"
        path.write_text(text)
        with pytest.raises(RequestInvalid, match=words):
            read_measurement(path)
    with pytest.raises(RequestInvalid, match="cannot read"):
        read_measurement(tmp_path / "none")


# -- the page

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\"&"


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href")
            if name == "style":
                numbers = [float(n) for n in re.findall(r"[\d.]+(?=%)", value or "")]
                assert sum(numbers) <= 100.01

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(document: Mapping[str, Any]) -> Reader:
    reader = Reader()
    reader.feed(heard_page(document))
    assert reader.open == []
    assert not {"script", "img", "link"} & set(reader.tags)
    return reader


def test_the_page_tells_the_story() -> None:
    text = " ".join(read(measured()).text.split())
    assert "“long” is heard 0.32 s after its text begins to be written" in text
    assert "Asked for when it is whole, it is heard after 2.52 s" in text
    assert "Not listened to as it is written, SSE, base64: it offers none." in text
    assert "“short” as it is written, WebSocket, binary failed 1 time: it broke off." in text
    assert "rendered as it came, to the sample35 of 35 runs" in text.replace(
        "sample 35", "sample35"
    )


def test_the_page_is_whole_and_harmless() -> None:
    document = copy.deepcopy(measured())
    for answer in document["answers"]:
        answer["parts"] = [HOSTILE + "x" * 500, 1.5]
    document["endpoint"] = {"name": HOSTILE, "url": HOSTILE}
    document["made_by"] = document["started"] = HOSTILE
    document["left_out"][0]["reason"] = HOSTILE
    document["heard"][0]["failures"] = [HOSTILE]
    document["browser"]["version"] = HOSTILE
    assert "window.hacked" in read(document).text


def test_pages_of_little() -> None:
    document = measured()
    whole = [it for it in document["heard"] if it["way"]["ask"] == "bidi"]
    assert "is heard 0.3" in read({**document, "heard": whole}).text
    nothing = dict.fromkeys(FIGURES)
    group = {**document["heard"][0], "figures": nothing, "exact": None, "runs": []}
    assert "Nothing was heard." in read({**document, "heard": [group]}).text
    # Runs may be left out.
    group = {key: value for key, value in document["heard"][0].items() if key != "runs"}
    assert "runs with underruns" not in read({**document, "heard": [group]}).text
    late = measured(underruns=2, stall_s=0.02)
    assert "35 of 35" in read(late).text
    assert "2 (at most 2)" in heard_table(late)


# -- what is served


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    pytest.importorskip("uvicorn", reason="the extra `browser` is not installed")
    async with (
        Site(endpoint).served() as address,
        httpx.AsyncClient(trust_env=False, timeout=30) as client,
    ):
        yield address, client


async def test_the_page_and_its_modules(endpoint: Serve) -> None:
    async with serving(Endpoint("e", "ws://127.0.0.1:9")) as (address, client):
        page = await client.get(address)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        listener = await client.get(address + "listener.js")
        needed = re.findall(r'from "\./([^"]+)"', listener.text)
        assert set(needed) <= set(modules())
        for name in (*needed, "player-worklet.js", "sound-formats.js", "event-stream.js"):
            found = await client.get(address + name)
            assert found.content == modules()[name]
            assert found.headers["content-type"] == "text/javascript; charset=utf-8"
        # Who does not know the path gets nothing.
        root = address[: address.index("/", 7) + 1]
        for other in (root, root + "listener.js", address + "none.js", address + "invocations"):
            assert (await client.get(other)).status_code == 404
        assert (await client.post(root + "invocations", json={})).status_code == 404
        for other in (root + "session", address + "other"):
            with pytest.raises(InvalidStatus, match="403"):
                await connect(other.replace("http", "ws"), proxy=None)


async def test_a_session_goes_through(endpoint: Serve) -> None:
    seen = []

    async def script(peer: Any) -> None:
        seen.append(peer.connection.request.headers["Authorization"])
        await peer.next("synthesize")
        await peer.speak(1, b"\1\0" * 100)
        await peer.gone()

    where = Endpoint("e", await endpoint(script), headers={"Authorization": "Bearer x"})
    async with serving(where) as (address, _):
        session = address.replace("http", "ws") + "session"
        async with connect(session, proxy=None) as socket:
            await socket.send('{"text": "Hello."}')
            assert json.loads(await socket.recv())["type"] == "synthesis_start"
            assert await socket.recv() == b"\1\0" * 100
            assert json.loads(await socket.recv())["type"] == "synthesis_complete"
    assert seen == ["Bearer x"]


@asynccontextmanager
async def answering(
    script: Callable[[bytes, Reading, Writing], Awaitable[None]],
) -> AsyncIterator[str]:
    async def handle(reader: Reading, writer: Writing) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        try:
            await script(head + await reader.readexactly(length), reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_request_goes_through_as_it_comes() -> None:
    seen = asyncio.Event()

    async def script(request: bytes, reader: Reading, writer: Writing) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /invocations ")
        assert b"\r\naccept: text/event-stream" in head.lower()
        assert b"\r\nauthorization: bearer x" in head.lower()
        assert body == b'{"text": "Hello."}'
        fields = b"Content-Type: text/event-stream\r\nUtterwire-Voice: v\r\nServer: secret\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n" + fields + b"Connection: close\r\n\r\nfirst")
        # The rest is sent when the first of it has gone all the way.
        await seen.wait()
        writer.write(b"second")
        await writer.drain()

    async with answering(script) as url:
        headers = {"Authorization": "Bearer x"}
        async with serving(Endpoint("e", url, headers=headers)) as (address, client):
            request = client.stream("POST", address + "invocations", content=b'{"text": "Hello."}')
            async with request as answer:
                assert answer.status_code == 200
                assert answer.headers["utterwire-voice"] == "v"
                assert "server" not in answer.headers
                parts = answer.aiter_raw()
                assert await anext(parts) == b"first"
                seen.set()
                assert b"".join([part async for part in parts]) == b"second"


async def test_who_leaves_cancels_at_the_endpoint() -> None:
    gone = asyncio.Event()

    async def script(request: bytes, reader: Reading, writer: Writing) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nfirst")
        await writer.drain()
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async with answering(script) as url, serving(Endpoint("e", url)) as (address, client):
        async with client.stream("POST", address + "invocations", json={}) as answer:
            await anext(answer.aiter_raw())
        await asyncio.wait_for(gone.wait(), 60)


async def test_requests_that_get_nowhere() -> None:
    async def script(request: bytes, reader: Reading, writer: Writing) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()

    async with serving(Endpoint("e", "ws://127.0.0.1:9")) as (address, client):
        answer = await client.post(address + "invocations", json={})
        assert answer.status_code == 502
        assert "cannot be reached (ConnectError)" in answer.json()["message"]
        answer = await client.post(address + "invocations", content=b"x" * 2**21)
        assert answer.status_code == 413
    async with serving(Endpoint("e", "sagemaker:mine")) as (address, client):
        answer = await client.post(address + "invocations", json={})
        assert answer.status_code == 501
    async with answering(script) as url, serving(Endpoint("e", url)) as (address, client):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(address + "invocations", json={})


async def test_an_endpoint_by_tls_is_asked_with_its_authorities(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authorities = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authorities)
    where = Endpoint("e", "wss://127.0.0.1:9", ca_file=authorities)
    async with serving(where) as (address, client):
        assert (await client.post(address + "invocations", json={})).status_code == 502


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "playwright", None)
    with pytest.raises(
        ExtraMissing, match=r"package playwright: pip install 'utterwire\[browser\]'"
    ):
        served.import_extra("playwright")


# -- the browser's program


def test_which_chromium(tmp_path: Path) -> None:
    for name in ("mine", "google-chrome"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": str(tmp_path)}
    mine = str(tmp_path / "mine")
    assert find_chromium(None, path) == tmp_path / "google-chrome"
    assert find_chromium(None, {**path, "UTTERWIRE_CHROMIUM": mine}) == tmp_path / "mine"
    assert find_chromium(tmp_path / "mine", path) == tmp_path / "mine"
    with pytest.raises(RequestInvalid, match="is no program"):
        find_chromium(tmp_path / "none", path)
    with pytest.raises(RequestInvalid, match="there is no Chromium here: install it"):
        find_chromium(None, {"PATH": str(tmp_path / "none")})


# -- the command


class Listener:
    """A browser that hears what it is told to."""

    described: Mapping[str, Any] = {"name": "chromium", "version": "1", "sample_rate": RATE}

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.asked: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}

    @asynccontextmanager
    async def open(
        self, program: Path, address: str, *, trace: Path | None
    ) -> AsyncIterator["Listener"]:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            assert (await client.get(address)).status_code == 200
        yield self

    async def listen(self, turn: Any, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        self.turns.append(f"{turn.answer.name} {turn.way}")
        found = self.answers.get(self.turns[-1], told())
        if isinstance(found, BaseException):
            raise found
        return dict(found)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    pytest.importorskip("uvicorn", reason="the extra `browser` is not installed")
    made = Listener()
    monkeypatch.setattr(listen, "Chromium", made)
    monkeypatch.setattr(listen, "find_chromium", lambda given: Path("chromium"))
    monkeypatch.setattr(listen, "import_extra", lambda name: None)
    return made


@pytest.fixture
def latency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTTERWIRE_ENDPOINTS", raising=False)

    async def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        code = await asyncio.to_thread(main, ["latency", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


async def leaving(peer: Any) -> None:
    await peer.say_goodbye()


async def test_answers_are_listened_to_in_turns(
    endpoint: Serve, latency: Any, listener: Listener, tmp_path: Path
) -> None:
    url = await endpoint(leaving) + "/?token=secret"
    listener.answers["trial batch-sse"] = {"failure": "no events here"}
    written(tmp_path, ONE + '[[answer]]\nname = "b"\ntext = "Hello."\n')
    code, out, err = await latency(
        *("--browser", "--url", url, "--answers", "answers.toml", "--repeat", "2", "--voice", "v"),
        *("--way", "bidi-websocket", "--way", "batch-sse", "--json", "a.json", "--html", "a.html"),
        *("--rate", "inf", "--timeout", "7"),
    )
    assert code == ExitCode.DONE, err
    assert listener.turns == [
        "trial bidi-websocket",
        "trial batch-sse",
        *("a bidi-websocket", "b bidi-websocket") * 2,
    ]
    assert listener.asked == {"rate": None, "voice": "v", "silence_s": 7}
    document = json.loads((tmp_path / "a.json").read_text("utf-8"))
    validator("latency").validate(document)
    assert [(it["answer"], it["count"], it["exact"]) for it in document["heard"]] == [
        ("a", 2, 2),
        ("b", 2, 2),
    ]
    assert "batch-sse is left out: no events here" in err
    assert "4 of 4 runs" in out
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "secret" not in page + out + err + json.dumps(document)


async def test_runs_that_fail_are_told(endpoint: Serve, latency: Any, listener: Listener) -> None:
    url = await endpoint(leaving)
    listener.answers["text batch-websocket"] = {"failure": "it broke off"}
    code, out, err = await latency("Hello.", "--browser", "--url", url, "--repeat", "1", "-q")
    assert (code, out) == (ExitCode.FAILED, "")
    assert "1 run failed: it broke off" in err


@pytest.mark.parametrize("which", ["trial", "text"])
async def test_nothing_that_is_heard(
    endpoint: Serve, latency: Any, listener: Listener, which: str
) -> None:
    for way in WAYS:
        listener.answers[f"{which} {way}"] = {"failure": "it is mute"}
    url = await endpoint(leaving)
    code, out, err = await latency("Hello.", "--browser", "--url", url, "--repeat", "1")
    assert (code, out) == (ExitCode.FAILED, "")
    assert err.endswith("utterwire: nothing was heard: it is mute\n")


async def test_an_interruption_keeps_what_was_measured(
    endpoint: Serve, latency: Any, listener: Listener, tmp_path: Path
) -> None:
    url = await endpoint(leaving)
    listener.answers["text batch-sse"] = asyncio.CancelledError()
    code, out, err = await latency("Hello.", "--browser", "--url", url, "--json", "a.json")
    assert code == ExitCode.TERMINATED
    assert err.endswith("interrupted; 3 runs are in what was written\n")
    assert "3 of 3 runs" in out
    document = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [it["count"] for it in document["heard"]] == [1, 1, 1, 0]
    listener.answers["trial bidi-websocket"] = asyncio.CancelledError()
    code, out, err = await latency("Hello.", "--browser", "--url", url, "--json", "b.json")
    assert (code, out) == (ExitCode.TERMINATED, "")
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--repeat", "3"), ExitCode.USAGE, "--repeat belongs to --browser"),
        (("--way", "bidi-sse"), ExitCode.USAGE, "--way belongs to --browser"),
        (("--browser", "--repeat", "0"), ExitCode.USAGE, "--repeat wants"),
        (("--browser", "--depth", "1"), ExitCode.USAGE, "neither --transport nor --depth"),
        (("--browser", "--transport", "sse"), ExitCode.USAGE, "neither --transport nor --depth"),
        (("--browser", "-"), ExitCode.USAGE, "not -"),
        (("--browser", "..."), ExitCode.USAGE, "nothing to speak"),
        (("--browser", "x", "--answers", "y"), ExitCode.USAGE, "not both"),
        (("--browser", "--answers", "y"), ExitCode.USAGE, "cannot read y"),
        (("--browser", "--url", "ws://127.0.0.1:1"), ExitCode.NO_CONNECTION, "nothing listens"),
        (("Hello.", "--browser", "--json", "no/a.json"), ExitCode.USAGE, "cannot write no/a.json"),
        (("--compare", "a.json"), ExitCode.USAGE, "two measurements or more"),
        (("--compare", "a.json", "b.json"), ExitCode.USAGE, "cannot read a.json"),
    ],
)
async def test_what_cannot_be_listened_to(
    endpoint: Serve,
    latency: Any,
    listener: Listener,
    arguments: tuple[str, ...],
    code: ExitCode,
    words: str,
) -> None:
    if "--json" in arguments:
        arguments = (*arguments, "--url", await endpoint(leaving), "--repeat", "1")
    got, out, err = await latency(*arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


async def test_comparing(latency: Any, tmp_path: Path) -> None:
    saved(tmp_path, "a.json", measured())
    saved(tmp_path, "b.json", measured(late=0.2))
    code, out, err = await latency("--compare", "a.json", "a.json", "a.json")
    assert (code, err) == (ExitCode.DONE, "")
    assert "111 of 111 medians lie within 10%" in out
    code, out, err = await latency("--compare", "a.json", "b.json")
    assert (code, err) == (ExitCode.FAILED, "")
    assert "heard_s of 'short', bidi-websocket" in out
    code, out, err = await latency("--compare", "a.json", "b.json", "-q")
    assert (code, out, err) == (ExitCode.FAILED, "", "")
