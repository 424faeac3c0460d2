"""Amazon Polly as a backend: the unmodified AWS SDK against a stand-in over HTTP/2.

The stand-in speaks at the level of the SDK's event stream: headers of the operation, signed events
one way, audio events and exceptions the other.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from utterwire_client import (
    Audio,
    Complete,
    ConnectFailed,
    DeadlineExceeded,
    Deadlines,
    RequestInvalid,
    SessionLost,
    Spoken,
    Start,
    UtteranceCancelled,
    UtteranceFailed,
    UtteranceRejected,
)

pytest.importorskip("aws_sdk_polly", reason="the AWS SDK needs Python 3.12 and the extra polly")
pytest.importorskip("awscrt", reason="the extra `polly` is not installed")

import h2.config
import h2.connection
import h2.events
import trustme
from smithy_aws_event_stream.events import EventMessage
from utterwire_client.polly import PollyBackend
from utterwire_conformance.router.event_stream import Deframer

# Where a stream is broken off the SDK sets futures that were cancelled, and says so on its way out.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("no_leftover_tasks"),
]

Answer = Callable[["Stream"], Awaitable[None]]


class Stream:
    """One ``StartSpeechSynthesisStream``, from the side of Polly."""

    def __init__(self, server: "Polly", connection: "Connection", number: int) -> None:
        self.server = server
        self.connection = connection
        self.number = number
        self.headers: dict[str, str] = {}
        self.text = ""
        self.ended = False
        self.gone = asyncio.Event()
        self._frames = Deframer()

    def feed(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            assert message.signature  # every event is signed
            if message.ends_the_stream:
                continue
            event = message.unwrapped()
            if event.text(":event-type") == "TextEvent":
                self.text += json.loads(event.payload)["Text"]
            elif event.text(":event-type") == "CloseStreamEvent":
                self.ended = True
                self.connection.answer(self)

    def headers_out(self, status: int = 200, **more: str) -> None:
        media = "application/vnd.amazon.eventstream" if status == 200 else "application/json"
        fields = {":status": str(status), "content-type": media, **more}
        self.connection.h2.send_headers(self.number, list(fields.items()))
        self.connection.flush()

    def send(self, headers: dict[str, str], payload: bytes) -> None:
        octets = EventMessage(headers=headers, payload=payload).encode()
        self.connection.h2.send_data(self.number, octets)
        self.connection.flush()

    def audio(self, data: bytes) -> None:
        self.send(
            {
                ":message-type": "event",
                ":event-type": "AudioEvent",
                ":content-type": "application/octet-stream",
            },
            data,
        )

    def closed(self) -> None:
        self.send(
            {
                ":message-type": "event",
                ":event-type": "StreamClosedEvent",
                ":content-type": "application/json",
            },
            json.dumps({"RequestCharacters": len(self.text)}).encode(),
        )
        self.end()

    def exception(self, name: str, **fields: object) -> None:
        self.send(
            {
                ":message-type": "exception",
                ":exception-type": name,
                ":content-type": "application/json",
            },
            json.dumps({"message": "said so", **fields}).encode(),
        )
        self.end()

    def end(self, data: bytes = b"") -> None:
        self.connection.h2.send_data(self.number, data, end_stream=True)
        self.connection.flush()


class Connection(asyncio.Protocol):
    """One connection over HTTP/2."""

    def __init__(self, server: "Polly") -> None:
        self.server = server
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.streams: dict[int, Stream] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.connections.add(self)
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.RequestReceived():
                    stream = Stream(self.server, self, event.stream_id)
                    fields = dict(event.headers)
                    stream.headers = {_text(name): _text(value) for name, value in fields.items()}
                    self.streams[event.stream_id] = stream
                    self.server.streams.append(stream)
                case h2.events.DataReceived():
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    self.streams[event.stream_id].feed(event.data)
        self.flush()

    def answer(self, stream: Stream) -> None:
        task = asyncio.ensure_future(self.server.answer(stream))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        for stream in self.streams.values():
            stream.gone.set()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


async def speak(stream: Stream) -> None:
    """What Polly does: audio, here a sample for each letter, and the word that this was all."""
    stream.headers_out()
    audio = stream.text.encode("utf-16-le")
    for at in range(0, len(audio), 5):  # which splits samples
        stream.audio(audio[at : at + 5])
    stream.closed()


class Polly:
    """The stand-in: ``answer`` says what comes of a text."""

    def __init__(self) -> None:
        self.answer: Answer = speak
        self.streams: list[Stream] = []
        self.connections: set[Connection] = set()
        self.url = ""
        self.ca_file = Path()

    def backend(self, **options: Any) -> PollyBackend:
        given = {"region": "eu-west-1", "endpoint_url": self.url, "ca_file": self.ca_file}
        return PollyBackend(**{**given, **options})


@pytest.fixture
async def polly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Polly]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDSTANDIN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stand-in-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    stand_in = Polly()
    stand_in.ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(stand_in.ca_file)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(stand_in), "localhost", 0, ssl=context)
    stand_in.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    yield stand_in
    server.close()
    for connection in tuple(stand_in.connections):
        connection.transport.abort()
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            await server.wait_closed()


async def test_an_utterance(polly: Polly) -> None:
    async with polly.backend() as backend:
        got = [event async for event in backend.synthesize("Hello.", voice="Amy")]
    assert got[0] == Start(16000, "pcm_s16le", "Amy")
    audio = b"".join(event.data for event in got if isinstance(event, Audio))
    assert audio == "Hello.".encode("utf-16-le")
    assert all(len(event.data) % 2 == 0 for event in got if isinstance(event, Audio))
    assert got[-1] == Complete(received_bytes=12, duration_s=6 / 16000)
    (stream,) = polly.streams
    assert stream.headers[":path"].rstrip("?") == "/v1/synthesisStream"
    assert stream.headers["x-amzn-voiceid"] == "Amy"
    assert stream.headers["x-amzn-engine"] == "generative"
    assert stream.headers["x-amzn-outputformat"] == "pcm"
    assert stream.headers["x-amzn-samplerate"] == "16000"
    assert "/eu-west-1/polly/" in stream.headers["authorization"]


async def test_a_token_stream(polly: Polly) -> None:
    async def tokens() -> AsyncIterator[str]:
        for token in ("Good mor", "ning. How", " are **you**", "? Fine."):
            yield token

    async with polly.backend() as backend:
        spoken: dict[str, bytes] = {}
        async for event in backend.speak(tokens(), format="mp3"):
            assert isinstance(event, Spoken)
            if isinstance(event.event, Audio):
                text = event.sentence.spoken or ""
                spoken[text] = spoken.get(text, b"") + event.event.data
    assert list(spoken) == ["Good morning.", "How are you?", "Fine."]
    assert all(audio == text.encode("utf-16-le") for text, audio in spoken.items())
    assert {stream.headers["x-amzn-outputformat"] for stream in polly.streams} == {"mp3"}


async def test_an_interruption_ends_the_stream(polly: Polly) -> None:
    async def endless(stream: Stream) -> None:
        stream.headers_out()
        stream.audio(bytes(3200))

    polly.answer = endless
    async with polly.backend() as backend:
        speech = backend.speak("A long story. And more of it.")
        async for event in speech:
            if isinstance(event, Spoken) and isinstance(event.event, Audio):
                break
        await speech.interrupt()
        async with asyncio.timeout(20):
            await polly.streams[0].gone.wait()
        polly.answer = speak
        assert await backend.synthesize("Yes?").read() == "Yes?".encode("utf-16-le")


@pytest.mark.parametrize(
    ("name", "kind", "retryable"),
    [
        ("ValidationException", UtteranceRejected, False),
        ("ThrottlingException", UtteranceRejected, True),
        ("ServiceQuotaExceededException", UtteranceRejected, True),
        ("ServiceFailureException", UtteranceFailed, True),
    ],
)
async def test_exceptions(polly: Polly, name: str, kind: type[Exception], retryable: bool) -> None:
    async def fail(stream: Stream) -> None:
        stream.headers_out()
        stream.audio(bytes(320))
        more = {"reason": "other"} if name == "ValidationException" else {}
        if name == "ServiceQuotaExceededException":
            more = {"quotaCode": "x", "serviceCode": "polly"}
        stream.exception(name, **more)

    polly.answer = fail
    async with polly.backend() as backend:
        with pytest.raises(kind, match="said so") as caught:
            await backend.synthesize("Hello.").read()
    assert getattr(caught.value, "retryable") is retryable  # noqa: B009


async def test_a_sentence_that_met_a_busy_polly_is_asked_for_again(polly: Polly) -> None:
    async def busy_once(stream: Stream) -> None:
        if len(polly.streams) == 1:
            stream.headers_out()
            stream.exception("ThrottlingException")
        else:
            await speak(stream)

    polly.answer = busy_once
    async with polly.backend() as backend:
        assert await backend.speak("Hello.").read() == "Hello.".encode("utf-16-le")


async def test_a_call_that_is_refused(polly: Polly) -> None:
    async def refuse(stream: Stream) -> None:
        stream.headers_out(403, **{"x-amzn-errortype": "UnrecognizedClientException"})
        stream.end(b'{"message": "the security token is invalid"}')

    polly.answer = refuse
    async with polly.backend() as backend:
        with pytest.raises(ConnectFailed, match="Polly") as caught:
            await backend.synthesize("Hello.").read()
        assert not caught.value.retryable


@pytest.mark.parametrize("audio", [b"", bytes(320)])
async def test_a_stream_that_breaks(polly: Polly, audio: bytes) -> None:
    async def break_off(stream: Stream) -> None:
        stream.headers_out()
        if audio:
            stream.audio(audio)
        stream.end()

    polly.answer = break_off
    async with polly.backend() as backend:
        with pytest.raises(SessionLost if audio else ConnectFailed) as caught:
            await backend.synthesize("Hello.").read()
        assert caught.value.retryable


@pytest.mark.parametrize(
    ("deadlines", "which"),
    [(Deadlines(first_chunk_s=0.3), "first_chunk"), (Deadlines(connect_s=0.3), "connect")],
)
async def test_silence(polly: Polly, deadlines: Deadlines, which: str) -> None:
    async def silent(stream: Stream) -> None:
        if which == "first_chunk":
            stream.headers_out()

    polly.answer = silent
    async with polly.backend(deadlines=deadlines) as backend:
        with pytest.raises(DeadlineExceeded) as caught:
            await backend.synthesize("Hello.").read()
    assert caught.value.which == which


async def test_events_without_audio_are_silence(polly: Polly) -> None:
    async def empty(stream: Stream) -> None:
        stream.headers_out()
        while not stream.gone.is_set():
            stream.audio(b"")
            await asyncio.sleep(0.02)

    polly.answer = empty
    async with polly.backend(deadlines=Deadlines(first_chunk_s=0.3)) as backend:
        with pytest.raises(DeadlineExceeded) as caught:
            await backend.synthesize("Hello.").read()
    assert caught.value.which == "first_chunk"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": " "}, "blank"),
        ({"text": "x", "speed": 1.5}, "speed"),
        ({"text": "x", "format": "aac"}, "aac"),
        ({"text": "x", "sample_rate": 24000}, "24000"),
    ],
)
async def test_what_polly_cannot_do(polly: Polly, fields: dict[str, Any], said: str) -> None:
    async with polly.backend() as backend:
        with pytest.raises(RequestInvalid, match=said):
            backend.synthesize(**fields)


async def test_closing_gives_up_what_runs(polly: Polly) -> None:
    async def silent(stream: Stream) -> None:
        stream.headers_out()
        stream.audio(bytes(320))

    polly.answer = silent
    backend = polly.backend()
    utterance = backend.synthesize("Hello.")
    async for event in utterance:
        if isinstance(event, Audio):
            break
    await backend.close()
    with pytest.raises((SessionLost, UtteranceCancelled)):
        await utterance.read()
    with pytest.raises(SessionLost):
        await backend.open()
