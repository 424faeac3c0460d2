"""The experiments on how audio travels: encodings, and raw bytes against base64 in events."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
from conversations import ANSWERS
from finding import Finding, NotMeasured, Row
from speaking import Place, Plan
from utterwire_client import Audio, Complete, Session, Start, UtteranceRejected
from utterwire_client.address import http_url, is_loopback, is_sagemaker
from utterwire_client.event_stream import EventStreamReader

__all__ = ["CLIPS", "FORMATS", "base64_bytes", "carriers", "encodings", "words_wrong"]

#: A clip, as the file has it: ``id`` and ``text``.
Clip: TypeAlias = dict[str, str]

#: What is spoken, in the form of ``scripts/data/quality_sentences.json``.
CLIPS: Final = Path(__file__).resolve().parent / "data" / "clips.json"

FORMATS: Final = {"pcm_s16le": "PCM", "mp3": "MP3", "aac": "AAC", "opus": "Opus"}
_WORDS: Final = "word errors, %"
_PATIENCE_S: Final = 60.0


def base64_bytes(size: int) -> int:
    """How long so many bytes are in base64 (RFC 4648 section 4)."""
    return 4 * ((size + 2) // 3)


async def encodings(place: Place, plan: Plan) -> Finding:
    """What each encoding costs and saves, over short clips."""
    finding = Finding(
        "Short clips in each encoding. How many bytes are they, raw and in base64, how soon is the "
        "first one here, and are the words still understood?",
        measures={
            "first_byte_ms": "first byte, ms",
            "bytes": "bytes of a clip",
            "base64_bytes": "in base64, chunk by chunk",
        },
        facts={"kbit_s": "kbit for a second of speech", "of_pcm": "of PCM, %", "words": _WORDS},
        note=(
            "Word errors are those of a recogniser that hears the clips decoded, all clips "
            "together. It makes some of its own: compare with the row of PCM."
        ),
    )
    clips = json.loads(CLIPS.read_text(encoding="utf-8"))["sentences"][: plan.clips]
    async with place.session() as session:
        with tempfile.TemporaryDirectory() as folder:
            for format, name in FORMATS.items():
                row = Row(name)
                finding.rows.append(row)
                heard = await _one_encoding(session, row, format, clips, Path(folder))
                if heard is None:
                    continue
                if place.recogniser is None:
                    row.facts["words"] = "not heard: needs an endpoint that speaks, --recogniser"
                else:
                    row.facts["words"] = await asyncio.to_thread(
                        words_wrong, place.recogniser, clips, heard, format
                    )
                place.tell(f"{name}: {len(clips)} clips")
    pcm = finding.rows[0].facts.get("kbit_s")
    for row in finding.rows:
        rate = row.facts.get("kbit_s")
        if isinstance(rate, float) and isinstance(pcm, float):
            row.facts["of_pcm"] = 100 * rate / pcm
    return finding


async def _one_encoding(
    session: Session, row: Row, format: str, clips: Sequence[Clip], folder: Path
) -> list[tuple[Path, int]] | None:
    """The clips in files, as they came, each with its rate; None if the endpoint has no such
    format."""
    loop = asyncio.get_running_loop()
    heard = []
    speech_s = size = 0.0
    for number, clip in enumerate([clips[0], *clips]):
        asked_at = loop.time()
        first_at: float | None = None
        pieces: list[bytes] = []
        rate = 0
        try:
            async for event in session.synthesize(clip["text"], format=format):
                match event:
                    case Start():
                        rate = event.sample_rate
                    case Audio():
                        first_at = first_at or loop.time()
                        pieces.append(event.data)
                    case Complete() if number:
                        speech_s += event.duration_s or 0.0
        except UtteranceRejected as exc:
            row.note = f"not offered ({exc.code})"
            return None
        if first_at is None:
            raise NotMeasured(f"the endpoint sends no audio for {clip['text']!r}")
        if not number:
            continue  # the first time, an encoder is loaded
        audio = b"".join(pieces)
        size += len(audio)
        row.add(
            first_byte_ms=1000 * (first_at - asked_at),
            bytes=len(audio),
            base64_bytes=sum(base64_bytes(len(piece)) for piece in pieces),
        )
        path = folder / f"{clip['id']}.{format}"
        await asyncio.to_thread(path.write_bytes, audio)
        heard.append((path, rate))
    if speech_s:
        row.facts["kbit_s"] = 8 * size / speech_s / 1000
    return heard


def words_wrong(
    python: str, clips: Sequence[Clip], heard: Sequence[tuple[Path, int]], format: str
) -> float | str:
    """How many words a recogniser hears wrong, in percent; or why that is not known.

    ``heard`` has the file of each clip, in ``format``, and its rate; ``python`` has the recogniser.
    """
    from recogniser import Recogniser, RecogniserError
    from served_speech import decoded, write_wav
    from word_errors import hearing, rate, read_sentences

    sentences = {sentence.id: sentence for sentence in read_sentences(CLIPS)}
    try:
        hearings = []
        with Recogniser(python) as recogniser:
            for clip, (path, sample_rate) in zip(clips, heard, strict=True):
                samples = decoded(path.read_bytes(), format, sample_rate)
                wav = write_wav(path.with_suffix(".wav"), samples)
                hearings.append(hearing(sentences[clip["id"]], recogniser.hear(wav)))
    except (RecogniserError, OSError, ValueError) as exc:
        return f"not heard: {exc}"
    return rate(hearings)


async def carriers(place: Place, plan: Plan) -> Finding:
    """The same speech by a session, as a body of HTTP, and as server-sent events."""
    finding = Finding(
        "The same text by a session, by HTTP as raw audio, and as server-sent events with the "
        "audio in base64. What does each cost?",
        measures={
            "first_byte_ms": "first byte, ms",
            "here_ms": "last byte, ms",
            "received_bytes": "bytes received",
            "cpu_ms": "client's processor time, ms",
        },
        facts={"audio_bytes": "bytes of audio", "more": "received for a byte of audio"},
        note="Bytes are those of messages, or of the body: framing, headers and TLS come on top.",
    )
    text = ANSWERS["short"]
    ways: dict[str, Callable[[Place, Plan, str, Row], Awaitable[None]]] = {
        "session": _by_session,
        "HTTP, raw": partial(_by_http, events=False),
        "HTTP, events": partial(_by_http, events=True),
    }
    for name, carry in ways.items():
        row = Row(name)
        finding.rows.append(row)
        try:
            await carry(place, plan, text, row)
        except NotMeasured as exc:
            row.note = str(exc)
            continue
        received = row.samples["received_bytes"][0]
        row.facts["more"] = received / float(row.facts["audio_bytes"])
        place.tell(f"{name}: {plan.rounds} rounds")
    return finding


@asynccontextmanager
async def _measured(row: Row, *, warm: bool) -> AsyncIterator[dict[str, float]]:
    """One sample: the block tells ``first_at`` (loop time), ``received_bytes``, ``audio_bytes``."""
    loop = asyncio.get_running_loop()
    seen: dict[str, float] = {"received_bytes": 0, "audio_bytes": 0}
    asked_at, cpu = loop.time(), time.process_time()
    yield seen
    if "first_at" not in seen:
        raise NotMeasured("no audio came")
    row.facts["audio_bytes"] = int(seen["audio_bytes"])
    if warm:
        row.add(
            first_byte_ms=1000 * (seen["first_at"] - asked_at),
            here_ms=1000 * (loop.time() - asked_at),
            received_bytes=seen["received_bytes"],
            cpu_ms=1000 * (time.process_time() - cpu),
        )


async def _by_session(place: Place, plan: Plan, text: str, row: Row) -> None:
    loop = asyncio.get_running_loop()
    async with place.tapped() as (session, tap):
        for number in range(plan.rounds + 1):
            before = tap.received_bytes
            async with _measured(row, warm=number > 0) as seen:
                async for event in session.synthesize(text):
                    if isinstance(event, Audio):
                        seen.setdefault("first_at", loop.time())
                        seen["audio_bytes"] += len(event.data)
                seen["received_bytes"] = tap.received_bytes - before


async def _by_http(place: Place, plan: Plan, text: str, row: Row, *, events: bool) -> None:
    where = place.where
    if is_sagemaker(where.endpoint.url):
        raise NotMeasured("not by HTTP alone: the AWS SDK signs what it sends")
    url = http_url(where.endpoint.url)
    loop = asyncio.get_running_loop()
    fields = [
        *where.headers,
        ("Accept", "text/event-stream" if events else "*/*"),
        ("Accept-Encoding", "identity"),
    ]
    # Where nothing is to be verified, no authorities are read.
    verify: Any = False if url.startswith("http:") else where.tls or True
    trust = not is_loopback(url)
    async with httpx.AsyncClient(verify=verify, trust_env=trust, timeout=_PATIENCE_S) as client:
        for number in range(plan.rounds + 1):
            try:
                async with (
                    _measured(row, warm=number > 0) as seen,
                    client.stream("POST", url, headers=fields, json={"text": text}) as response,
                ):
                    if response.status_code != 200:
                        raise NotMeasured(f"HTTP {response.status_code}")
                    audio = _Events() if events else None
                    async for data in response.aiter_raw():
                        seen["received_bytes"] += len(data)
                        size = len(data) if audio is None else audio.audio_of(data)
                        if size:
                            seen.setdefault("first_at", loop.time())
                            seen["audio_bytes"] += size
                    if audio is not None and not audio.ended:
                        raise NotMeasured("the endpoint's events break off")
            except httpx.HTTPError as exc:
                raise NotMeasured(f"HTTP failed: {exc or type(exc).__name__}") from None


class _Events:
    """A body of events, decoded as a listener has to."""

    def __init__(self) -> None:
        self._reader = EventStreamReader()
        self.ended = False

    def audio_of(self, data: bytes) -> int:
        """How much audio is in the events that are whole now. Raises `NotMeasured`."""
        size = 0
        for event in self._reader.feed(data):
            match event.name:
                case "audio_chunk":
                    try:
                        size += len(base64.b64decode(json.loads(event.data)["data"], validate=True))
                    except (ValueError, KeyError, TypeError):
                        raise NotMeasured(
                            "the endpoint sends an event that cannot be read"
                        ) from None
                case "audio_stream_end":
                    self.ended = True
                case "error":
                    raise NotMeasured("the endpoint sends an event that tells of an error")
        return size
