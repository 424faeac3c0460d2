"""The judges of encoded audio, on streams of a real encoder: whole ones pass, others fail once."""

from __future__ import annotations

import io
import json
import math
import struct
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import av
import pytest
from utterwire_conformance.check import CHECKS, Account
from utterwire_conformance.codecs import adts, ogg
from utterwire_conformance.codecs.decoder import decode
from utterwire_conformance.transcript import Case, Entry, Transcript
from utterwire_conformance.verdict import Judgement, Verdict

TEXT = "The train to the coast leaves at noon."
RATE = 24_000
SECONDS = 1.5
MUXERS = {"mp3": ("mp3", "libmp3lame"), "aac": ("adts", "aac"), "opus": ("ogg", "libopus")}
MUXERS |= {"mulaw": ("mulaw", "pcm_mulaw"), "alaw": ("alaw", "pcm_alaw")}
FORMATS = ["wav", *MUXERS]
ALL = [
    "formats.decodable",
    "formats.duration",
    "formats.audio_bytes",
    "formats.wav_header",
    "formats.adts",
    "formats.opus_ogg",
    "formats.g711",
    "formats.sample_rate",
    "formats.never_json",
]


def pcm(rate: int, seconds: float = SECONDS) -> array[int]:
    step = 2 * math.pi / rate
    return array(
        "h",
        (
            round(9_000 * math.sin(220 * step * n) + 2_000 * math.sin(500 * step * n))
            for n in range(round(rate * seconds))
        ),
    )


def wav(rate: int, samples: array[int]) -> bytes:
    unknown = 0xFFFFFFFF
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", unknown, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", unknown),
    )
    return header + samples.tobytes()


def encoded(name: str, rate: int, seconds: float = SECONDS) -> bytes:
    samples = pcm(rate, seconds)
    if name == "pcm_s16le":
        return samples.tobytes()
    if name == "wav":
        return wav(rate, samples)
    muxer, codec = MUXERS[name]
    target = io.BytesIO()
    options = {"page_duration": "20000"} if name == "opus" else {}
    if name == "mp3":
        options = {"write_xing": "0", "id3v2_version": "0"}
    with av.open(target, "w", format=muxer, options=options) as container:
        own = {"reservoir": "0"} if name == "mp3" else {}
        stream = container.add_stream(codec, rate=rate, layout="mono", options=own)
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(samples))
        frame.planes[0].update(samples.tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        frame.sample_rate, frame.pts = rate, 0
        frame.time_base = Fraction(1, rate)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()


def default_rate(name: str) -> int:
    return 8_000 if name in ("mulaw", "alaw") else RATE


@dataclass
class Spoken:
    """One utterance: what was asked for, the bytes that came, and what was said of them."""

    format: str
    data: bytes
    rate: int | None = None
    seconds: float = SECONDS
    said_bytes: int | None = None
    named: Mapping[str, Any] = field(default_factory=dict)
    text: str = TEXT
    expect: Any = "accept"
    code: str | None = None
    step: int = 1_000


def good(name: str, rate: int | None = None) -> Spoken:
    return Spoken(name, encoded(name, rate or default_rate(name)), rate)


TWIN = Spoken("pcm_s16le", encoded("pcm_s16le", RATE))


def session(*utterances: Spoken, scenario: str = "encoded-speech") -> Transcript:
    """A session in which all of them are spoken, one after the other."""
    transcript = Transcript(scenario)
    now = 0.0

    def line(direction: Any, kind: Any, **fields: Any) -> None:
        nonlocal now
        now += 0.01
        transcript.add(Entry(now, direction, kind, 1, **fields))

    def hear(**fields: Any) -> None:
        line("in", "text", data=json.dumps(fields).encode())

    line("out", "open", target="/invocations-bidirectional-stream", method="GET")
    line("in", "open", status=101)
    for seq, spoken in enumerate(utterances, 1):
        asked: dict[str, Any] = {"text": spoken.text}
        if spoken.format != "pcm_s16le" or spoken.rate is not None:
            asked["format"] = spoken.format
        if spoken.rate is not None:
            asked["sample_rate"] = spoken.rate
        case = Case(f"{spoken.format} {spoken.rate}", "formats.offered", spoken.expect)
        line("note", "note", text=case.to_note())
        line("out", "text", data=json.dumps(asked).encode())
        if spoken.code is not None:
            error = {"code": spoken.code, "message": "No.", "retryable": False, "rejected": True}
            hear(type="error", seq=seq, **error)
            continue
        rate = spoken.rate or default_rate(spoken.format)
        start = {"sample_rate": rate, "format": spoken.format, "voice": "v", **spoken.named}
        hear(type="synthesis_start", seq=seq, **start)
        for at in range(0, len(spoken.data), spoken.step):
            line("in", "binary", data=spoken.data[at : at + spoken.step])
        size = len(spoken.data) if spoken.said_bytes is None else spoken.said_bytes
        end = {"total_duration_s": spoken.seconds, "elapsed_s": 0.01, "audio_bytes": size}
        hear(type="synthesis_complete", seq=seq, characters=len(spoken.text), **end)
    line("out", "close", code=1000)
    return transcript


def judge(check: str, *transcripts: Transcript) -> Judgement:
    return CHECKS[check].judge([Account.of(transcript) for transcript in transcripts])


def red(*utterances: Spoken) -> dict[str, str]:
    """The checks that fail, with their reasons."""
    transcript = session(*utterances)
    found = {check: judge(check, transcript) for check in ALL}
    return {c: j.reason for c, j in found.items() if j.verdict is Verdict.FAIL}


SERVES = {
    "wav": {"wav_header", "decodable", "duration"},
    "mp3": {"decodable", "duration"},
    "aac": {"adts", "decodable", "duration"},
    "opus": {"opus_ogg", "decodable", "duration"},
    "mulaw": {"g711", "duration"},
    "alaw": {"g711", "duration"},
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rate", [None, 16_000])
def test_a_whole_stream_passes(name: str, rate: int | None) -> None:
    transcript = session(TWIN, TWIN, good(name, rate))
    found = {check: judge(check, transcript).verdict for check in ALL}
    assert {c.partition(".")[2] for c, v in found.items() if v is Verdict.PASS} == {
        *SERVES[name],
        *("audio_bytes", "sample_rate", "never_json"),
    }
    assert set(found.values()) <= {Verdict.PASS, Verdict.NOT_EXERCISED}


def test_an_mp3_with_tag_and_index_passes() -> None:
    target = io.BytesIO()
    with av.open(target, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=RATE, layout="mono")
        assert isinstance(stream, av.AudioStream)
        samples = pcm(RATE)
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(samples))
        frame.planes[0].update(samples.tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        frame.sample_rate, frame.pts = RATE, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert target.getvalue().startswith(b"ID3")
    assert red(TWIN, TWIN, Spoken("mp3", target.getvalue())) == {}


def without_adts(data: bytes) -> bytes:
    return b"".join(data[f.offset + f.header : f.offset + f.size] for f in adts.frames(data))


def without_pages(data: bytes, *numbers: int) -> bytes:
    return b"".join(
        data[page.offset : page.offset + page.size]
        for page in ogg.pages(data)
        if page.sequence not in numbers
    )


def last_page(data: bytes) -> int:
    return list(ogg.pages(data))[-1].sequence


def changed(data: bytes, at: int, to: bytes) -> bytes:
    return data[:at] + to + data[at + len(to) :]


def garbled_page(data: bytes, number: int) -> bytes:
    page = list(ogg.pages(data))[number]
    last = page.offset + page.size - 1
    return changed(data, last, bytes([data[last] ^ 1]))


Damage = Callable[[bytes], bytes]
DAMAGES: list[tuple[str, Damage, str, str]] = [
    ("wav", lambda d: d[44:], "formats.wav_header", "does not begin with RIFF"),
    ("wav", lambda d: d[:40], "formats.wav_header", "no whole header"),
    ("wav", lambda d: d[:44] + d, "formats.wav_header", "second header"),
    ("wav", lambda d: changed(d, 4, bytes(4)), "formats.wav_header", "first size is 0x00000000"),
    ("wav", lambda d: changed(d, 24, b"\x80\x3e\0\0\0\x7d"), "formats.sample_rate", "16000 Hz"),
    ("wav", lambda d: d + b"\0", "formats.decodable", "no whole number of samples"),
    (
        "wav",
        lambda d: d[:44] + b"".join(d[n : n + 2][::-1] for n in range(44, len(d), 2)),
        "formats.decodable",
        "high byte first",
    ),
    ("mp3", lambda d: d[:-1], "formats.decodable", "cut off"),
    ("mp3", lambda d: d[100:], "formats.decodable", "at byte 0 no frame"),
    ("mp3", lambda d: d + b"\0", "formats.decodable", "no frame"),
    ("mp3", lambda d: d[: len(d) // 2 // 192 * 192] + d[-192:], "formats.duration", "missing"),
    ("mp3", lambda d: encoded("pcm_s16le", RATE), "formats.decodable", "at byte 0 no frame"),
    ("mp3", lambda d: encoded("aac", RATE), "formats.decodable", "at byte 0 no frame"),
    ("mp3", lambda d: changed(d, 4, b"\x20"), "formats.decodable", "leans on 32 bytes"),
    ("mp3", lambda d: encoded("mp3", 16_000), "formats.sample_rate", "names 16000 Hz"),
    ("aac", without_adts, "formats.adts", "no ADTS frame begins"),
    ("aac", lambda d: encoded("mp3", RATE), "formats.adts", "no ADTS frame begins"),
    ("aac", lambda d: changed(d, 2, bytes([d[2] & 0x3F])), "formats.adts", "not AAC-LC"),
    ("aac", lambda d: d[:-1], "formats.decodable", "cut off"),
    ("opus", lambda d: d[40:], "formats.opus_ogg", "no Ogg page begins"),
    ("opus", lambda d: without_pages(d, 0, 1), "formats.opus_ogg", "no page begins a stream"),
    ("opus", lambda d: without_pages(d, 1), "formats.opus_ogg", "no OpusTags"),
    ("opus", lambda d: d + d, "formats.opus_ogg", "ends before its last page"),
    ("opus", lambda d: without_pages(d, 20), "formats.decodable", "page 20 is missing"),
    ("opus", lambda d: without_pages(d, last_page(d)), "formats.decodable", "does not end"),
    ("opus", lambda d: garbled_page(d, 7), "formats.decodable", "checksum of page 7"),
    ("opus", lambda d: encoded("opus", 16_000), "formats.sample_rate", "names 16000 Hz"),
    ("mulaw", lambda d: encoded("alaw", 8_000), "formats.g711", "read as alaw it is speech"),
    ("alaw", lambda d: encoded("mulaw", 8_000), "formats.g711", "read as mulaw it is speech"),
    ("mulaw", lambda d: encoded("pcm_s16le", 8_000), "formats.g711", "pcm_s16le it is speech"),
]


@pytest.mark.parametrize(("name", "damage", "check", "said"), DAMAGES)
def test_damage_turns_one_check_red(name: str, damage: Damage, check: str, said: str) -> None:
    right = good(name)
    found = red(TWIN, TWIN, right, replace(right, data=damage(right.data)))
    assert found.keys() == {check}, found
    assert said in found[check]


def test_a_silent_stream_is_not_what_was_asked_for() -> None:
    silent = wav(RATE, array("h", bytes(2 * RATE)))
    assert red(replace(good("wav"), data=silent, seconds=1.0)) == {}
    target = io.BytesIO()
    with av.open(target, "w", format="adts") as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame(format="s16", layout="mono", samples=RATE)
        frame.planes[0].update(bytes(frame.planes[0].buffer_size))
        frame.sample_rate, frame.pts = RATE, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    found = red(replace(good("aac"), data=target.getvalue(), seconds=1.0))
    assert found.keys() == {"formats.decodable"}
    assert "silent" in found["formats.decodable"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("change", "part"), [(0.5, "decodes to"), (-0.5, "decodes to")])
def test_a_length_that_is_told_wrong(name: str, change: float, part: str) -> None:
    right = good(name)
    found = red(TWIN, TWIN, replace(right, seconds=SECONDS + change))
    assert found.keys() == {"formats.duration"}
    assert part in found["formats.duration"]
    assert ("missing" in found["formats.duration"]) is (change > 0)


@pytest.mark.parametrize("name", ["mp3", "aac"])
def test_delay_is_not_speech(name: str) -> None:
    right = good(name)
    heard = decode(name, right.data)
    padded = replace(right, seconds=heard.samples / heard.sample_rate)
    assert "delay is counted" in red(TWIN, TWIN, padded)["formats.duration"]
    # An engine that does not speak alike each time cannot be told from one that counts it.
    other = replace(TWIN, data=TWIN.data + bytes(960))
    assert red(TWIN, other, padded) == {}
    assert red(padded) == {}


def test_bytes_are_counted_as_they_came() -> None:
    found = red(replace(good("mp3"), said_bytes=72_000))
    assert found.keys() == {"formats.audio_bytes"}
    assert "72000" in found["formats.audio_bytes"]


def test_a_rate_that_is_only_named() -> None:
    def named_only(rate: int) -> Spoken:
        seconds = SECONDS * RATE / rate
        return Spoken("pcm_s16le", encoded("pcm_s16le", RATE), rate, seconds)

    mislabelled = named_only(16_000)
    found = red(TWIN, TWIN, mislabelled)
    assert found.keys() == {"formats.sample_rate"}
    assert "2.25 s" in found["formats.sample_rate"]
    nearly = named_only(22_050)
    assert "formats.sample_rate" in red(TWIN, TWIN, nearly)
    # Where the same request is not as long each time, only all rates of a format tell.
    longer = replace(TWIN, data=encoded("pcm_s16le", RATE, SECONDS * 1.1))
    assert "formats.sample_rate" not in red(TWIN, longer, nearly, mislabelled)
    far = [named_only(rate) for rate in (8_000, 48_000)]
    assert "formats.sample_rate" not in red(TWIN, longer, far[0])
    assert "formats.sample_rate" in red(TWIN, longer, *far)
    right = [Spoken("pcm_s16le", encoded("pcm_s16le", rate), rate) for rate in (8_000, 48_000)]
    assert red(TWIN, longer, *right) == {}
    assert "formats.sample_rate" not in red(TWIN, longer, far[0], right[1])


def test_what_is_claimed_is_served() -> None:
    for name, check in (("mp3", "formats.decodable"), ("pcm_s16le", "formats.sample_rate")):
        refused = Spoken(name, b"", 16_000, code="unsupported_sample_rate")
        assert red(TWIN, refused).keys() == {check}
        assert red(TWIN, replace(refused, expect="either")) == {}
        assert red(TWIN, replace(refused, code="overloaded")) == {}


def test_what_names_something_else_is_judged_elsewhere() -> None:
    other = Spoken("mp3", encoded("pcm_s16le", RATE), named={"format": "pcm_s16le"})
    assert red(other) == {}


def test_a_chunk_between_braces() -> None:
    data = b"{" + bytes(30) + b"} \n"
    for name, check in (("mulaw", "formats.never_json"), ("pcm_s16le", "audio.never_json")):
        transcript = session(Spoken(name, data))
        for other in ("formats.never_json", "audio.never_json"):
            expected = Verdict.FAIL if other == check else Verdict.NOT_EXERCISED
            assert judge(other, transcript).verdict is expected, (name, other)


@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("mp3", "formats.decodable", "framed well"),
        ("aac", "formats.duration", "has to be decoded"),
        ("opus", "formats.decodable", "framed well"),
    ],
)
def test_without_a_decoder_nothing_is_green(
    name: str, check: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = good(name)
    monkeypatch.setitem(sys.modules, "av", None)
    found = judge(check, session(right))
    assert found.verdict is Verdict.NOT_EXERCISED
    assert said in found.reason
    assert "pip install 'utterwire[decoders]'" in found.reason
    # What the framing tells is told all the same.
    assert judge("formats.sample_rate", session(right)).verdict is Verdict.PASS
    damage = garbled_page(right.data, 5) if name == "opus" else right.data[:-1]
    broken = replace(right, data=damage)
    assert judge("formats.decodable", session(broken)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("first", "verdict"), [(0.02, Verdict.PASS), (2.0, Verdict.FAIL)], ids=["early", "late"]
)
def test_encoded_audio_comes_early(first: float, verdict: Verdict) -> None:
    transcript = session(replace(good("mp3"), seconds=12.0), scenario="encoded-long")
    audio = [n for n, entry in enumerate(transcript.entries) if entry.kind == "binary"]
    for n in range(audio[0], len(transcript.entries)):
        entry = transcript.entries[n]
        later = first if n == audio[0] else first + 2.0 + 0.01 * n if first < 1 else first + 0.1
        transcript.entries[n] = replace(entry, t=entry.t + later)
    assert judge("formats.early", transcript).verdict is verdict
    # The suite itself may have been late: the best of some tries tells.
    again = session(replace(good("mp3"), seconds=12.0), scenario="encoded-long")
    for entry in again.entries:
        transcript.entries.append(replace(entry, session=2, t=entry.t + 10.0))
    assert judge("formats.early", transcript).verdict is Verdict.PASS
    short = session(good("mp3"), scenario="encoded-long")
    assert judge("formats.early", short).verdict is Verdict.NOT_EXERCISED


def exchange(spoken: Spoken, **headers: str) -> Transcript:
    """One exchange by HTTP."""
    transcript = Transcript("http-formats")
    rate = spoken.rate or default_rate(spoken.format)
    asked = {"text": TEXT, "format": spoken.format, "sample_rate": spoken.rate, "stream": False}
    case = Case(spoken.format, "formats.offered", "accept")
    transcript.add(Entry(0.0, "note", "note", 1, text=case.to_note()))
    body = json.dumps(asked).encode()
    post = Entry(0.1, "out", "http-request", 1, method="POST", target="/invocations", data=body)
    transcript.add(post)
    told = {
        "Content-Type": "audio/mpeg",
        "Utterwire-Format": spoken.format,
        "Utterwire-Sample-Rate": str(rate),
        "Utterwire-Voice": "v",
        "Utterwire-Duration-S": f"{spoken.seconds}",
        "Utterwire-Audio-Bytes": str(len(spoken.data)),
        "Utterwire-Characters": str(len(TEXT)),
        **headers,
    }
    fields = tuple((name.replace("_", "-"), value) for name, value in told.items())
    transcript.add(Entry(0.2, "in", "http-response", 1, status=200, headers=fields))
    transcript.add(Entry(0.3, "in", "http-body", 1, data=spoken.data, fin=True))
    return transcript


def test_bodies_are_judged_as_well() -> None:
    for name in FORMATS:
        spoken = good(name)
        for check in ALL[:2] + ALL[3:8]:
            verdict = judge(check, exchange(spoken)).verdict
            assert verdict in (Verdict.PASS, Verdict.NOT_EXERCISED), (name, check)
        assert judge("formats.duration", exchange(spoken)).verdict is Verdict.PASS
    cut = replace(good("mp3"), data=good("mp3").data[:-50])
    assert judge("formats.decodable", exchange(cut)).verdict is Verdict.FAIL
    elsewhere = exchange(cut, Utterwire_Format="pcm_s16le")
    assert judge("formats.decodable", elsewhere).verdict is Verdict.NOT_EXERCISED
    untold = exchange(good("mp3"), Utterwire_Duration_S="soon")
    assert judge("formats.duration", untold).verdict is Verdict.NOT_EXERCISED


@pytest.mark.parametrize(
    ("name", "said", "verdict"),
    [
        ("mp3", "audio/mpeg", Verdict.PASS),
        ("mp3", "Audio/MPEG", Verdict.PASS),
        ("mp3", "audio/mp3", Verdict.FAIL),
        ("opus", 'audio/ogg; codecs="opus"', Verdict.PASS),
        ("opus", "audio/ogg", Verdict.FAIL),
        ("wav", "audio/wav", Verdict.PASS),
        ("aac", "audio/aac", Verdict.PASS),
        ("mulaw", "audio/PCMU;rate=8000", Verdict.PASS),
        ("alaw", "audio/pcma; rate=8000", Verdict.PASS),
        ("alaw", "audio/PCMA;rate=24000", Verdict.FAIL),
    ],
)
def test_content_types(name: str, said: str, verdict: Verdict) -> None:
    transcript = exchange(good(name), Content_Type=said)
    assert judge("http.content_type", transcript).verdict is verdict
    assert judge("http.headers", transcript).verdict is Verdict.PASS
    assert judge("http.whole_headers", transcript).verdict is Verdict.PASS
