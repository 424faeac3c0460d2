"""Judges of encoded audio and of sample rates (`protocol.md#encoded-audio`).

A stream that is not framed as its format asks is told of once: what cannot be read is held against
the rule of the framing, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from utterwire_conformance.check import Account, Judge, check, on_each, on_sessions, settle
from utterwire_conformance.codecs import (
    DECODER_MISSING,
    FramingError,
    Heard,
    adts,
    decode,
    decoder_is_there,
    g711,
    mpeg,
    ogg,
    riff,
)
from utterwire_conformance.dialogue import Dialogue, Utterance
from utterwire_conformance.exchange import Exchange
from utterwire_conformance.verdict import Judgement, Verdict, fail, not_exercised, passed

from . import quote
from .audio import came_early, spells_json

__all__ = [
    "Stream",
    "adts_framing",
    "audio_bytes",
    "decodable",
    "duration",
    "early",
    "g711_octets",
    "never_json",
    "opus_ogg",
    "sample_rate",
    "streams",
    "wav_header",
]

_OFFERED: Final = "formats.offered"
_PCM: Final = "pcm_s16le"
_DEFAULT_RATES: Final[Mapping[str, int]] = {"mulaw": 8_000, "alaw": 8_000}
_DEFAULT_RATE: Final = 24_000
_SECOND_HAND: Final = ("encoded-speech", "encoded-rates", "http-formats")
_EXCUSES: Final = frozenset({"overloaded", "going_away", "queue_full"})
# What stands in the table of the clause: samples of delay, by format.
_DELAY: Final[Mapping[str, int]] = {"mp3": 2_304, "aac": 3_072}
_EXACT_S: Final = 0.001
# Two clocks of floating point, and a value that may be rounded to the millisecond.
_ROUNDING_S: Final = 0.0005
# About -50 dBFS, as for PCM.
_HEARD_PEAK: Final = 0.003
# Speech is not of the same length each time. Where it is, little is left to chance.
_STEADY: Final = 0.005
_STEADY_SLACK: Final = 0.03
_STEADY_SLACK_S: Final = 0.03
# Where it is not, only rates far from the default tell, several of them together.
_TELLING: Final = 1.8
_FEWEST_RATES: Final = 2
_RESAMPLE: Final = "Resample to the rate that is asked for; do not only name it."
_LEAST_S: Final = 10.0
_FEWEST_ANSWERS: Final = 2
_BEST: Final = (Verdict.PASS, Verdict.FAIL, Verdict.NOT_EXERCISED)
_FEWEST_OCTETS: Final = 800
_TWO_EACH: Final = 1.9
# Any octets at all decode as G.711.
_DECODED: Final = frozenset({"wav", "mp3", "aac", "opus"})
_SILENT: Final = "what it decodes to is silent"


@dataclass(frozen=True, slots=True)
class Stream:
    """One utterance in one format, whole, from a session or from an HTTP exchange.

    `rate` in Hz is the one that was asked for or is the default. `duration_s` and `said_bytes` are
    what the endpoint says of it, None where it says nothing. `sent` and `received` quote the wire.
    """

    format: str
    rate: int
    asked_rate: bool
    data: bytes
    duration_s: float | None
    said_bytes: float | None
    sent: str
    received: str
    text: str
    name: str

    def fail(self, reason: str, legal: str, advice: str) -> Judgement:
        """A failure of this stream."""
        return fail(reason, sent=self.sent, received=self.received, legal=legal, advice=advice)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _wanted(fields: Mapping[str, Any]) -> tuple[str, int, bool] | None:
    """The format and rate that a request asks for, and whether it names the rate."""
    name = fields.get("format") or _PCM
    rate = _number(fields.get("sample_rate"))
    if not isinstance(name, str):
        return None
    if rate is not None and rate >= 1:
        return name, int(rate), True
    return name, _DEFAULT_RATES.get(name, _DEFAULT_RATE), False


def _of_utterance(utterance: Utterance) -> Stream | None:
    fields = utterance.sent.meaning.fields
    wanted = _wanted(fields)
    start, complete = utterance.start, utterance.complete
    if wanted is None or start is None or complete is None:
        return None
    # An endpoint that says it speaks something else is judged by `start.fields`.
    if (start.fields.get("format"), start.fields.get("sample_rate")) != wanted[:2]:
        return None
    data = b"".join(chunk.data for chunk in utterance.audio)
    case = utterance.sent.case
    return Stream(
        *wanted,
        data,
        _number(complete.fields.get("total_duration_s")),
        _number(complete.fields.get("audio_bytes")),
        quote.sent(utterance.sent),
        f"{quote.octets(data, 'binary')}, then {quote.chunk(complete)}",
        utterance.sent.meaning.text,
        case.name if case is not None else "",
    )


def _of_exchange(exchange: Exchange) -> Stream | None:
    wanted = _wanted(exchange.request)
    if not exchange.is_synthesis or exchange.status != 200 or not exchange.clean or wanted is None:
        return None
    named = exchange.headers.get("utterwire-format"), exchange.headers.get("utterwire-sample-rate")
    if named != (wanted[0], str(wanted[1])):
        return None
    said = exchange.headers.get("utterwire-duration-s", "")
    try:
        duration_s: float | None = float(said)
    except ValueError:
        duration_s = None
    return Stream(
        *wanted,
        exchange.body,
        duration_s,
        None,
        quote.exchange_request(exchange),
        quote.answer(exchange),
        str(exchange.request.get("text", "")),
        exchange.case.name if exchange.case is not None else "",
    )


def streams(account: Account) -> Iterator[Stream]:
    """The streams of audio, not empty, that were asked for to judge their format."""
    for dialogue in account.dialogues:
        for utterance in dialogue.utterances.values():
            case = utterance.sent.case
            if case is not None and case.check == _OFFERED:
                found = _of_utterance(utterance)
                if found is not None and found.data:
                    yield found
    for exchange in account.exchanges:
        if exchange.case is not None and exchange.case.check == _OFFERED:
            found = _of_exchange(exchange)
            if found is not None and found.data:
                yield found


def _on_streams(
    otherwise: str, find: Callable[[Stream], Iterator[Judgement]], formats: tuple[str, ...]
) -> Judge:
    """Make a judge from a function that yields what it finds in one stream."""
    return on_each(lambda account: _of_formats(account, formats), otherwise)(find)


def _of_formats(account: Account, formats: tuple[str, ...]) -> Iterator[Stream]:
    return (stream for stream in streams(account) if stream.format in formats)


# --- The framing of each format ------------------------------------------------------------------


def _find_wav_header(stream: Stream) -> Iterator[Judgement]:
    """`wav` begins with its one header of 44 bytes."""
    legal = "44 bytes: RIFF, 0xFFFFFFFF, WAVE, `fmt ` (PCM, mono, 16 bits), `data`, 0xFFFFFFFF"
    advice = "Write the header yourself: the length is not known while audio is being made."
    header = riff.read_header(stream.data)
    if header is None:
        yield stream.fail(f"`wav` has {len(stream.data)} bytes, no whole header.", legal, advice)
    elif header.faults:
        yield stream.fail(
            f"The header of `wav` is not right: {'; '.join(header.faults)}.", legal, advice
        )
    elif riff.is_riff(stream.data[riff.HEADER_BYTES :]):
        yield stream.fail("`wav` has a second header behind the first.", legal, advice)
    else:
        yield passed()


def _has_wav_header(stream: Stream) -> bool:
    whole = riff.is_riff(stream.data) and len(stream.data) >= riff.HEADER_BYTES
    return whole and not riff.is_riff(stream.data[riff.HEADER_BYTES :])


wav_header = check("formats.wav-header", *_SECOND_HAND)(
    _on_streams("nothing was spoken as `wav`", _find_wav_header, ("wav",))
)


def _find_adts(stream: Stream) -> Iterator[Judgement]:
    """`aac` is a chain of ADTS frames of AAC-LC."""
    legal = "ADTS frames of AAC-LC, each with its header, from the first byte on"
    advice = "Put an ADTS header before each frame; raw AAC tells no decoder where a frame ends."
    try:
        first = next(adts.frames(stream.data))
    except FramingError as error:
        yield stream.fail(f"`aac` is not framed as ADTS: {error}.", legal, advice)
        return
    if first.is_lc:
        yield passed()
    else:
        yield stream.fail("The first ADTS frame is not AAC-LC.", legal, advice)


def _is_adts(stream: Stream) -> bool:
    try:
        next(adts.frames(stream.data))
    except FramingError:
        return False
    return True


adts_framing = check("formats.adts", *_SECOND_HAND)(
    _on_streams("nothing was spoken as `aac`", _find_adts, ("aac",))
)


def _find_opus_ogg(stream: Stream) -> Iterator[Judgement]:
    """`opus` is one Ogg stream with the headers of RFC 7845."""
    legal = "one Ogg stream: a page with OpusHead, OpusTags, then the audio (RFC 7845)"
    advice = "Put Opus into Ogg pages, anew for each utterance, both headers first."
    try:
        ogg.read_opus(stream.data)
    except FramingError as error:
        yield stream.fail(f"`opus` is not carried in Ogg: {error}.", legal, advice)
        return
    yield passed()


def _opus(stream: Stream) -> ogg.OpusStream | None:
    try:
        return ogg.read_opus(stream.data)
    except FramingError:
        return None


opus_ogg = check("formats.opus-ogg", *_SECOND_HAND)(
    _on_streams("nothing was spoken as `opus`", _find_opus_ogg, ("opus",))
)


def _octets_fault(stream: Stream) -> str | None:
    """What G.711 octets are instead, or how many there are to a sample."""
    other = g711.likelier(stream.data, stream.format)
    if other is not None:
        return f"read as `{stream.format}` it is noise; read as {other} it is speech"
    expected = (stream.duration_s or 0.0) * stream.rate
    enough = len(stream.data) >= _FEWEST_OCTETS and expected > 0
    # Where it sounds right, it is the length that is told wrong.
    if enough and not g711.is_speech(stream.data, stream.format):
        each = len(stream.data) / expected
        if each >= _TWO_EACH:
            return f"there are {each:.1f} bytes for each sample of `total_duration_s`"
    return None


def _find_g711(stream: Stream) -> Iterator[Judgement]:
    """`mulaw` and `alaw` are the octets of G.711."""
    fault = _octets_fault(stream)
    if fault is None:
        yield passed()
        return
    yield stream.fail(
        f"`{stream.format}` is not that law of G.711: {fault}.",
        f"one octet a sample, of the {'mu' if stream.format == 'mulaw' else 'A'}-law of G.711",
        "Encode each 16-bit sample into one octet; mu-law inverts all bits, A-law the even ones.",
    )


g711_octets = check("formats.g711", *_SECOND_HAND)(
    _on_streams("nothing was spoken as `mulaw` or `alaw`", _find_g711, ("mulaw", "alaw"))
)

# --- What a player makes of it -------------------------------------------------------------------


def _refused(evidence: Sequence[Account], *, pcm: bool) -> Iterator[Judgement]:
    """What is claimed to be offered was refused: of PCM a rate, else a format."""
    for account in evidence:
        for dialogue in account.dialogues:
            for utterance in dialogue.utterances.values():
                case, refusal = utterance.sent.case, utterance.rejection
                wanted = _wanted(utterance.sent.meaning.fields)
                if case is None or case.check != _OFFERED or case.expect != "accept":
                    continue
                if refusal is None or refusal.code in _EXCUSES or wanted is None:
                    continue
                if (wanted[0] == _PCM) is pcm:
                    yield fail(
                        f"What the endpoint claims to offer was refused ({case.name}).",
                        sent=quote.sent(utterance.sent),
                        received=quote.chunk(refusal),
                        legal="speech",
                        advice="Serve each format and rate that you claim, or claim it no more.",
                        scenarios=(account.scenario,),
                    )


def _framing_fault(stream: Stream) -> str | None:
    """What keeps a stream from being whole, seen from its framing alone.

    Raises:
        LookupError: it is not framed as its format asks, which another rule tells.
    """
    match stream.format:
        case "wav":
            if not _has_wav_header(stream):
                raise LookupError
            payload = stream.data[riff.HEADER_BYTES :]
            if len(payload) % 2:
                return f"behind the header are {len(payload)} bytes, no whole number of samples"
            other = g711.likelier(payload, _PCM)
            return f"behind the header is {other}" if other is not None else None
        case "mp3":
            return _mpeg_fault(stream.data)
        case "aac":
            if not _is_adts(stream):
                raise LookupError
            try:
                list(adts.frames(stream.data))
            except FramingError as error:
                return str(error)
            return None
        case _:
            opus = _opus(stream)
            if opus is None:
                raise LookupError
            return _ogg_fault(opus)


def _mpeg_fault(data: bytes) -> str | None:
    try:
        found = [frame for frame in mpeg.frames(data) if not frame.is_index]
    except FramingError as error:
        return str(error)
    if not found:
        return "it holds no frame of audio"
    if found[0].reaches_back:
        back = found[0].reaches_back
        return f"the first frame leans on {back} bytes of audio before the utterance"
    return None


def _ogg_fault(opus: ogg.OpusStream) -> str | None:
    broken = next((n for n, page in enumerate(opus.pages) if not page.intact), None)
    if broken is not None:
        return f"the checksum of page {broken} is wrong"
    if opus.pages[0].sequence or opus.missing is not None:
        return f"page {opus.missing or 0} is missing"
    if not opus.pages[-1].is_last:
        return "the last page does not end the stream"
    return None


def _find_decodable(stream: Stream) -> Iterator[Judgement]:
    """A player that gets the bytes of one utterance plays all of it."""
    legal = f"one whole stream of `{stream.format}`, from the first byte to the last"
    advice = (
        "Give each utterance an encoder of its own, and send what it holds at the end"
        " before `synthesis_complete`."
    )
    try:
        fault = _framing_fault(stream)
    except LookupError:
        return
    if fault is None and stream.format in ("mp3", "aac", "opus"):
        if not decoder_is_there():
            yield not_exercised(f"The audio is framed well; {DECODER_MISSING}.")
            return
        fault = _heard_fault(stream, decode(stream.format, stream.data))
    if fault is None:
        yield passed()
    else:
        yield stream.fail(
            f"An utterance in `{stream.format}` does not decode by itself: {fault}.", legal, advice
        )


def _heard_fault(stream: Stream, heard: Heard) -> str | None:
    if heard.failure is not None:
        return f"a decoder says: {heard.failure}"
    if not heard.samples:
        return "a decoder finds no audio in it"
    if heard.peak < _HEARD_PEAK:
        return _SILENT
    opus = _opus(stream) if stream.format == "opus" and not heard.broken_off else None
    # A decoder leaves a few samples out where a stream is shorter than a frame.
    if opus is not None and heard.samples < opus.samples - ogg.CLOCK_HZ * _EXACT_S:
        return f"its clock says {opus.samples} samples, and {heard.samples} can be decoded"
    return None


@check("formats.decodable", *_SECOND_HAND, "encoded-long")
def decodable(evidence: Sequence[Account]) -> Judgement:
    """Each utterance decodes by itself, and whatever is claimed is spoken."""
    found = (
        replace(judgement, scenarios=(account.scenario,))
        for account in evidence
        for stream in streams(account)
        if stream.format in _DECODED
        for judgement in _find_decodable(stream)
    )
    refused = _refused(evidence, pcm=False)
    return settle([*refused, *found], evidence, "nothing was spoken that has to be decoded")


# --- How long it is ------------------------------------------------------------------------------


def _length(stream: Stream) -> tuple[float, float] | None:
    """The decoded length in seconds, and by how much it may exceed the speech; None if unknown."""
    match stream.format:
        case "wav":
            if not _has_wav_header(stream):
                return None
            return (len(stream.data) - riff.HEADER_BYTES) / 2 / stream.rate, _EXACT_S
        case "mulaw" | "alaw":
            if _octets_fault(stream) is not None:
                return None
            return len(stream.data) / stream.rate, _EXACT_S
        case "opus":
            opus = _opus(stream)
            if opus is None or _ogg_fault(opus) is not None:
                return None
            return opus.samples / ogg.CLOCK_HZ, _EXACT_S
        case "mp3" | "aac":
            return _coded_length(stream)
        case _:
            return len(stream.data) / 2 / stream.rate, _EXACT_S


def _coded_length(stream: Stream) -> tuple[float, float] | None:
    """The length that a decoder plays; a frame that tells of delay is obeyed by it."""
    try:
        if stream.format == "mp3":
            first: Any = next(mpeg.frames(stream.data))
            if _mpeg_fault(stream.data) is not None:
                return None
        else:
            whole = list(adts.frames(stream.data))
            first = whole[0]
    except (FramingError, StopIteration, IndexError):
        return None
    heard = decode(stream.format, stream.data) if decoder_is_there() else None
    if heard is None or heard.failure is not None or not heard.samples:
        return None
    frame = first.samples or (1_152 if first.sample_rate >= 32_000 else 576)
    return (
        heard.samples / heard.sample_rate,
        (_DELAY[stream.format] + frame) / heard.sample_rate,
    )


def _found_durations(account: Account) -> Iterator[Judgement]:
    found = list(streams(account))
    twins = _twins(found)
    for stream in found:
        if stream.format == _PCM or stream.duration_s is None:
            continue
        if stream.format in ("mp3", "aac") and not decoder_is_there():
            yield not_exercised(f"`{stream.format}` has to be decoded; {DECODER_MISSING}.")
            continue
        length = _length(stream)
        if length is not None:
            yield _judge_duration(stream, *length, twins.get(stream.text))


def _twins(found: Iterable[Stream]) -> dict[str, float]:
    """By text, how long it is in PCM at the default rate, where it is so each time."""
    lengths: dict[str, list[float]] = {}
    for stream in found:
        if stream.format == _PCM and stream.rate == _DEFAULT_RATE:
            lengths.setdefault(stream.text, []).append(len(stream.data) / 2 / stream.rate)
    return {
        text: every[0]
        for text, every in lengths.items()
        if len(every) > 1 and max(every) - min(every) <= _ROUNDING_S
    }


def _judge_duration(
    stream: Stream, length_s: float, most_s: float, twin_s: float | None
) -> Judgement:
    said = stream.duration_s or 0.0
    excess = length_s - said
    exact = most_s <= _EXACT_S
    legal = (
        f"`total_duration_s` {length_s:.3f}"
        if exact
        else f"`total_duration_s` of the speech alone, {max(0.0, length_s - most_s):.3f} to"
        f" {length_s:.3f}"
    )
    slack = _EXACT_S + _ROUNDING_S
    if excess < -slack:
        return stream.fail(
            f"`{stream.format}` decodes to {length_s:.3f} s; `total_duration_s` is {said:g}: audio"
            " is missing.",
            legal,
            "Send the tail that the encoder holds at the end, and lose no chunk.",
        )
    if excess > (slack if exact else most_s):
        return stream.fail(
            f"`{stream.format}` decodes to {length_s:.3f} s; `total_duration_s` is {said:g}.",
            legal,
            "Count the samples that go into the encoder, at the rate of the utterance.",
        )
    padded = twin_s is not None and not exact and abs(excess) <= _EXACT_S
    if padded and twin_s is not None and said - twin_s > 5 * _EXACT_S:
        return stream.fail(
            f"`total_duration_s` is {said:g}, all that `{stream.format}` decodes to, though in PCM"
            f" the same text takes {twin_s:.3f} s each time: the encoder's delay is counted.",
            f"`total_duration_s` {twin_s:.3f}",
            "Count the samples that go into the encoder, not those that come out of a decoder.",
        )
    return passed()


@check("formats.duration", *_SECOND_HAND, "encoded-long")
def duration(evidence: Sequence[Account]) -> Judgement:
    """What is decoded is as long as is said, less what the encoder adds."""
    found = (
        replace(judgement, scenarios=(account.scenario,))
        for account in evidence
        for judgement in _found_durations(account)
    )
    return settle(found, evidence, "nothing whose length is told was spoken in another format")


# --- Rates ---------------------------------------------------------------------------------------


def _header_rate(stream: Stream) -> int | None:
    """The rate in Hz that a format's own header names; None where it names none."""
    try:
        match stream.format:
            case "wav":
                header = riff.read_header(stream.data)
                return header.sample_rate if header and _has_wav_header(stream) else None
            case "mp3":
                return next(mpeg.frames(stream.data)).sample_rate
            case "aac":
                return next(adts.frames(stream.data)).sample_rate
            case "opus":
                return ogg.read_opus(stream.data).input_rate
    except (FramingError, StopIteration):
        pass
    return None


def _found_rates(account: Account) -> Iterator[Judgement]:
    found = list(streams(account))
    lengths: dict[str, list[float]] = {}
    for stream in found:
        if stream.format == _PCM and not stream.asked_rate:
            lengths.setdefault(stream.text, []).append(len(stream.data) / 2 / stream.rate)
    unsteady: dict[str, list[tuple[Stream, float, float]]] = {}
    for stream in found:
        named = _header_rate(stream)
        if named is not None and named != stream.rate:
            yield stream.fail(
                f"The header of `{stream.format}` names {named} Hz.",
                f"{stream.rate} Hz, as `synthesis_start` says",
                _RESAMPLE,
            )
            continue
        if named is not None:
            yield passed()
        length, like = _length(stream), lengths.get(stream.text)
        # What is not as long as it says is another rule's affair.
        if length is None or not like or not _as_long_as_told(stream, *length):
            continue
        if not _is_steady(like):
            unsteady.setdefault(stream.format, []).append(
                (stream, length[0], sum(like) / len(like))
            )
            continue
        slack = _STEADY_SLACK * like[0] + _STEADY_SLACK_S
        if like[0] - slack <= length[0] <= like[0] + slack + length[1]:
            yield passed()
        else:
            yield _of_another_rate(stream, length[0], like[0])
    for group in unsteady.values():
        yield from _judge_unsteady(group)


def _as_long_as_told(stream: Stream, length_s: float, most_s: float) -> bool:
    if stream.duration_s is None:
        return True
    excess = length_s - stream.duration_s
    return -_EXACT_S - _ROUNDING_S <= excess <= most_s + _EXACT_S


def _is_steady(like: Sequence[float]) -> bool:
    """Whether a text is as long each time that it is spoken."""
    return len(like) > 1 and max(like) - min(like) <= _STEADY * max(like)


def _judge_unsteady(group: Sequence[tuple[Stream, float, float]]) -> Iterator[Judgement]:
    """Whether all of a format is spoken at the default rate, where lengths differ by themselves.

    What is spoken so and named otherwise is longer or shorter by the quotient of the rates; that
    one stream is so by chance is likely, that all are is not.
    """
    telling = [
        (stream, seconds, like)
        for stream, seconds, like in group
        if abs(math.log(_DEFAULT_RATE / stream.rate)) >= math.log(_TELLING) and seconds and like
    ]
    mistaken = [
        abs(math.log(seconds / like * stream.rate / _DEFAULT_RATE))
        < abs(math.log(seconds / like)) / 3
        for stream, seconds, like in telling
    ]
    if len({stream.rate for stream, _, _ in telling}) < _FEWEST_RATES:
        return
    if all(mistaken):
        yield _of_another_rate(*telling[0])
    else:
        yield passed()


def _of_another_rate(stream: Stream, seconds: float, like: float) -> Judgement:
    return stream.fail(
        f"The text takes {seconds:.2f} s in `{stream.format}` at {stream.rate} Hz, and"
        f" {like:.2f} s in PCM at the default rate.",
        "the same speech at another rate, as long as it is at the default",
        _RESAMPLE,
    )


@check("formats.sample-rate", *_SECOND_HAND)
def sample_rate(evidence: Sequence[Account]) -> Judgement:
    """The audio has the rate that is named, by its headers and by its length."""
    found = (
        replace(judgement, scenarios=(account.scenario,))
        for account in evidence
        for judgement in _found_rates(account)
    )
    refused = _refused(evidence, pcm=True)
    return settle([*refused, *found], evidence, "nothing was spoken at another rate")


# --- Chunks and books ----------------------------------------------------------------------------


def _encoded(dialogue: Dialogue) -> Iterator[Utterance]:
    """The utterances in a format other than PCM."""
    for utterance in dialogue.utterances.values():
        wanted = _wanted(utterance.sent.meaning.fields)
        start = utterance.start
        if wanted is None or wanted[0] == _PCM or start is None:
            continue
        if start.fields.get("format") == wanted[0]:
            yield utterance


def _found_bytes(dialogue: Dialogue) -> Iterator[Judgement]:
    for utterance in _encoded(dialogue):
        complete = utterance.complete
        if complete is None:
            continue
        came = sum(len(chunk.data) for chunk in (*utterance.audio, *utterance.late_audio))
        said = complete.fields.get("audio_bytes")
        if _number(said) == came:
            yield passed()
            continue
        yield fail(
            f"`audio_bytes` is {said}; the encoded stream has {came} bytes.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(complete),
            legal=f"`audio_bytes` {came}",
            advice="Count the bytes that leave, headers included, not the samples behind them.",
        )


audio_bytes = check("formats.audio-bytes", "encoded-speech", "encoded-rates", general=True)(
    on_sessions("no utterance in another format was completed")(_found_bytes)
)


def _found_json(dialogue: Dialogue) -> Iterator[Judgement]:
    yield from spells_json(dialogue, encoded=True)


never_json = check(
    "formats.never-json", "encoded-speech", "encoded-rates", "encoded-long", general=True
)(on_sessions("no audio in another format was received")(_found_json))


@check("formats.early", "encoded-long")
def early(evidence: Sequence[Account]) -> Judgement:
    """The first encoded bytes of a long text come well before the last; the best of some tries."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            spoken = [
                (dialogue, utterance)
                for dialogue in account.dialogues
                for utterance in _encoded(dialogue)
                if utterance.audio and utterance.complete is not None
            ]
            # What every answer takes, a short one too: the way, and the start of the engine.
            least = min((u.audio[0].t - u.sent.t for _, u in spoken), default=0.0)
            if len(spoken) < _FEWEST_ANSWERS:
                least = 0.0
            tries: dict[str, list[Judgement]] = {}
            for dialogue, utterance in spoken:
                end = utterance.complete
                said = _number(end.fields.get("total_duration_s")) if end is not None else None
                enough = (said or 0.0) >= _LEAST_S
                found = came_early(utterance, max(dialogue.rtt, least), enough=enough)
                format = str(utterance.sent.meaning.fields.get("format"))
                tries.setdefault(format, []).extend(found)
            for every in tries.values():
                yield min(every, key=lambda found: _BEST.index(found.verdict))

    return settle(find(), evidence, "no long text was spoken in an encoded format")
