"""Judges of the audio and of what is said about it (`protocol.md#audio`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from utterwire_conformance.check import Account, check, on_sessions, settle
from utterwire_conformance.control_schema import satisfies_schema
from utterwire_conformance.dialogue import Chunk, Dialogue, Utterance
from utterwire_conformance.verdict import Judgement, fail, not_exercised, passed

from . import quote

__all__ = [
    "audible_pieces",
    "audio_bytes",
    "came_early",
    "characters",
    "chunk_size",
    "default_format",
    "defaults_kept",
    "duration",
    "elapsed",
    "is_heard",
    "never_json",
    "no_header",
    "no_leading_brace",
    "speed",
    "spells_json",
    "spoken",
    "start_fields",
    "streamed",
    "unspeakable",
    "whole_samples",
]

_MAX_CHUNK: Final = 65_536
_DEFAULT_RATE: Final = 24_000
_MAGIC: Final = {
    b"RIFF": "a WAV header",
    b"RF64": "a WAV header",
    b"FORM": "an AIFF header",
    b"OggS": "an Ogg page",
    b"fLaC": "a FLAC header",
    b"ID3": "an ID3 tag",
    b".snd": "an AU header",
    b"caff": "a CAF header",
}
# 16-bit samples: about -50 dBFS, well under any speech and over dither.
_HEARD_PEAK: Final = 100
# A judge by the clock needs something that takes long enough to tell.
_LEAST_TIME_S: Final = 0.1
_EARLY: Final = 0.3
_LEAST_AUDIO_BYTES: Final = 10 * 48_000


def _samples(pcm: bytes) -> array[int]:
    samples = array("h")
    samples.frombytes(pcm[: len(pcm) // 2 * 2])
    if array("H", [1]).tobytes() != b"\x01\x00":  # pragma: no cover - a big-endian machine
        samples.byteswap()
    return samples


def audible_pieces(pcm: bytes) -> int:
    """How many pieces of 20 ms hold more than silence."""
    samples = _samples(pcm)
    pieces = (samples[start : start + 480] for start in range(0, len(samples), 480))
    return sum(max(max(piece), -min(piece)) >= _HEARD_PEAK for piece in pieces)


def is_heard(pcm: bytes) -> bool:
    """Whether 16-bit little-endian samples hold more than silence."""
    samples = _samples(pcm)
    return bool(samples) and max(max(samples), -min(samples)) >= _HEARD_PEAK


def _is_pcm(utterance: Utterance) -> bool:
    start = utterance.start
    return start is None or start.fields.get("format", "pcm_s16le") == "pcm_s16le"


def _audio(dialogue: Dialogue) -> Iterator[tuple[Utterance | None, Chunk]]:
    for chunk in dialogue.chunks:
        if chunk.is_audio:
            yield (dialogue.utterance(chunk.seq) if chunk.seq is not None else None), chunk


def _asked(utterance: Utterance | None) -> str:
    return quote.sent(utterance.sent) if utterance is not None else ""


@check("audio.whole-samples", "probe", "order", general=True, correlates=False)
@on_sessions("no PCM audio was received")
def whole_samples(dialogue: Dialogue) -> Iterator[Judgement]:
    """Every chunk of PCM has an even number of bytes."""
    for utterance, chunk in _audio(dialogue):
        if utterance is not None and not _is_pcm(utterance):
            continue
        if len(chunk.data) % 2 == 0:
            yield passed()
            continue
        yield fail(
            f"An audio chunk has {len(chunk.data)} bytes, which is no whole number of 16-bit"
            " samples.",
            sent=_asked(utterance),
            received=quote.chunk(chunk),
            legal="an even number of bytes in every chunk",
            advice="Cut the audio between samples only.",
        )
        return


@check("audio.chunk-size", "probe", "order", general=True, correlates=False)
@on_sessions("no audio was received")
def chunk_size(dialogue: Dialogue) -> Iterator[Judgement]:
    """No chunk of audio is empty or too large."""
    for utterance, chunk in _audio(dialogue):
        if 0 < len(chunk.data) <= _MAX_CHUNK:
            yield passed()
            continue
        yield fail(
            f"An audio chunk has {len(chunk.data)} bytes.",
            sent=_asked(utterance),
            received=quote.chunk(chunk),
            legal="1 to 65,536 bytes",
            advice="Send audio in pieces of 20 to 200 ms; many clients refuse large frames.",
        )
        return


def _is_good_control(chunk: Chunk) -> bool:
    return chunk.is_control and satisfies_schema(chunk.data)


def spells_json(dialogue: Dialogue, *, encoded: bool) -> Iterator[Judgement]:
    """Whether chunks of PCM, or of `encoded` audio, can be taken for control."""
    for chunk in dialogue.chunks:
        # Control in a binary frame is another rule's affair, as long as it is good control.
        if chunk.kind != "binary" or _is_good_control(chunk):
            continue
        utterance = dialogue.running if chunk.seq is None else dialogue.utterance(chunk.seq)
        if (utterance is not None and not _is_pcm(utterance)) is not encoded:
            continue
        if not (chunk.data[:1] == b"{" and chunk.data.rstrip(b" \t\r\n")[-1:] == b"}"):
            yield passed()
            continue
        legal = "such a chunk cut elsewhere"
        yield fail(
            "An audio chunk begins with 0x7B and ends in 0x7D, so that a client may take it for"
            " a control message.",
            sent=_asked(utterance),
            received=quote.chunk(chunk),
            legal=legal if encoded else f"{legal}, or with one sample changed by one step",
            advice="Before you send audio, look at its first byte and cut it elsewhere.",
        )


@check("audio.never-json", "probe", "order", general=True, correlates=False)
@on_sessions("no audio was received")
def never_json(dialogue: Dialogue) -> Iterator[Judgement]:
    """A chunk that begins with a brace does not end in one."""
    yield from spells_json(dialogue, encoded=False)


@check("audio.no-leading-brace", "probe", "order", general=True, correlates=False)
@on_sessions("no audio was received")
def no_leading_brace(dialogue: Dialogue) -> Iterator[Judgement]:
    """A chunk of audio does not begin with 0x7B."""
    for utterance, chunk in _audio(dialogue):
        if chunk.data[:1] != b"{":
            yield passed()
            continue
        yield fail(
            "An audio chunk begins with 0x7B; clients that look at the first byte try to parse it.",
            sent=_asked(utterance),
            received=quote.chunk(chunk),
            legal="a chunk that begins with any other byte",
            advice="Cut the audio one sample earlier or later where it would begin with 0x7B.",
        )


@check("audio.no-header", "probe", "order", general=True, correlates=False)
@on_sessions("no PCM audio was received")
def no_header(dialogue: Dialogue) -> Iterator[Judgement]:
    """PCM begins with samples, not with the header of a file."""
    for utterance in dialogue.utterances.values():
        if not utterance.audio or not _is_pcm(utterance):
            continue
        found = next(
            (what for magic, what in _MAGIC.items() if utterance.pcm.startswith(magic)), None
        )
        if found is None:
            yield passed()
            continue
        yield fail(
            f"The audio begins with {found}; players would play it as a click.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(utterance.audio[0]),
            legal="raw samples from the first byte on",
            advice="Take the header off before you send PCM.",
        )


@check("audio.default-format", "accept-defaults", "probe", "null-fields", general=True)
@on_sessions("no request without format and rate was answered")
def default_format(dialogue: Dialogue) -> Iterator[Judgement]:
    """Without `format` and `sample_rate` the audio is PCM at 24,000 Hz."""
    for utterance in dialogue.utterances.values():
        fields = utterance.sent.meaning.fields
        if fields.get("format") is not None or fields.get("sample_rate") is not None:
            continue
        for start in utterance.starts:
            named = start.fields.get("format"), start.fields.get("sample_rate")
            if named == ("pcm_s16le", _DEFAULT_RATE):
                yield passed()
                continue
            yield fail(
                f"Without `format` and `sample_rate` the audio is {named[0]} at {named[1]} Hz.",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(start),
                legal="`format` pcm_s16le and `sample_rate` 24000",
                advice="Resample to 24,000 Hz unless the client asks for another rate.",
            )


@check("start.fields", "audio-fields", "accept-defaults", general=True)
@on_sessions("no `synthesis_start` was received")
def start_fields(dialogue: Dialogue) -> Iterator[Judgement]:
    """`synthesis_start` names what was asked for, and one voice for all that did not ask."""
    default: str | None = None
    advice = "Fill `synthesis_start` from what the engine is really asked to do."
    for utterance in dialogue.utterances.values():
        fields = utterance.sent.meaning.fields
        for start in utterance.starts:
            wrong = [
                (name, fields[name])
                for name in ("voice", "format", "sample_rate")
                if fields.get(name) is not None
                and utterance.sent.meaning.verdict != "reject"
                and start.fields.get(name) != fields[name]
            ]
            named = start.fields.get("voice")
            if fields.get("voice") is None and isinstance(named, str):
                if default is not None and named != default:
                    wrong.append(("voice", default))
                default = default or named
            if wrong:
                name, expected = wrong[0]
                yield fail(
                    f"`synthesis_start` names the {name} {start.fields.get(name)!r}.",
                    sent=quote.sent(utterance.sent),
                    received=quote.chunk(start),
                    legal=f"`{name}` {expected!r}",
                    advice=advice,
                )
            else:
                yield passed()


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


@check("complete.audio-bytes", "probe", "order", general=True)
@on_sessions("no utterance was completed")
def audio_bytes(dialogue: Dialogue) -> Iterator[Judgement]:
    """`audio_bytes` counts what was sent."""
    for utterance in dialogue.utterances.values():
        complete = utterance.complete
        if complete is None or not utterance.starts:
            continue
        came = sum(len(chunk.data) for chunk in (*utterance.audio, *utterance.late_audio))
        if _number(complete.fields.get("audio_bytes")) == came:
            yield passed()
            continue
        yield fail(
            f"`audio_bytes` is {complete.fields.get('audio_bytes')}, but {came} bytes of audio"
            " came.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(complete),
            legal=f"`audio_bytes` {came}",
            advice="Count the bytes of each chunk as you hand it to the transport.",
        )


@check("complete.duration", "probe", "order", general=True)
@on_sessions("no utterance in PCM was completed")
def duration(dialogue: Dialogue) -> Iterator[Judgement]:
    """`total_duration_s` follows from the bytes, to the millisecond."""
    for utterance in dialogue.utterances.values():
        complete, start = utterance.complete, utterance.start
        if complete is None or start is None or not _is_pcm(utterance):
            continue
        said = _number(complete.fields.get("total_duration_s"))
        counted = _number(complete.fields.get("audio_bytes"))
        rate = _number(start.fields.get("sample_rate"))
        if counted is None or not rate:
            continue
        expected = counted / (2 * rate)
        if said is not None and abs(said - expected) <= 0.001 + 1e-9:
            yield passed()
            continue
        yield fail(
            f"`total_duration_s` is {complete.fields.get('total_duration_s')}.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(complete),
            legal=f"{expected:.4f}: audio_bytes / (2 * sample_rate)",
            advice="Compute the duration from the bytes sent.",
        )


@check("complete.elapsed", "probe", "order", general=True)
@on_sessions("no utterance was completed")
def elapsed(dialogue: Dialogue) -> Iterator[Judgement]:
    """`elapsed_s` is not more than was seen to pass."""
    for utterance in dialogue.utterances.values():
        complete = utterance.complete
        if complete is None:
            continue
        said = _number(complete.fields.get("elapsed_s"))
        seen = complete.t - utterance.sent.t
        # Two clocks, and a value that may be rounded to the millisecond.
        if said is not None and 0 <= said <= seen + 0.005 + seen * 0.001:
            yield passed()
            continue
        yield fail(
            f"`elapsed_s` is {complete.fields.get('elapsed_s')}, but from the request to the"
            f" completion {seen:.3f} s passed.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(complete),
            legal=f"0 to {seen:.3f}",
            advice="Measure from `synthesis_start` to `synthesis_complete`, in seconds.",
        )


@check("complete.characters", "audio-fields", "probe", general=True)
@on_sessions("no utterance was completed")
def characters(dialogue: Dialogue) -> Iterator[Judgement]:
    """`characters` counts code points."""
    for utterance in dialogue.utterances.values():
        complete = utterance.complete
        if complete is None or utterance.sent.meaning.verdict != "accept":
            continue
        expected = len(utterance.sent.meaning.text)
        if _number(complete.fields.get("characters")) == expected:
            yield passed()
            continue
        yield fail(
            f"`characters` is {complete.fields.get('characters')}.",
            sent=quote.sent(utterance.sent),
            received=quote.chunk(complete),
            legal=f"`characters` {expected}, the code points of `text` as it was sent",
            advice="Count code points of the text as it came, before any normalising.",
        )


def spoken(dialogues: Iterable[Dialogue], name: str) -> dict[str, Utterance]:
    """The completed utterances that were sent for the check `name`, by the name of their case."""
    return {
        u.sent.case.name: u
        for dialogue in dialogues
        for u in dialogue.utterances.values()
        if u.sent.case is not None and u.sent.case.check == name and u.complete is not None
    }


@check("accept.defaults", "spoken-texts", id="accept.defaults_kept")
def defaults_kept(evidence: Sequence[Account]) -> Judgement:
    """A field that is absent has its default, whatever the request before it had."""
    found = (
        judgement
        for account in evidence
        for judgement in _keeps_defaults(spoken(account.dialogues, "audio.speaks_text"))
    )
    return settle(found, evidence, "no text was spoken before and after others at another speed")


def _keeps_defaults(heard: Mapping[str, Utterance]) -> Iterator[Judgement]:
    names = ("one text", "fast", "as before")
    before, fast, after = (heard.get(name) for name in names)
    if before is None or fast is None or after is None or not before.pcm:
        return
    sizes = [len(utterance.pcm) for utterance in (before, fast, after)]
    if sizes[1] > 0.75 * sizes[0]:
        yield not_exercised("the endpoint speaks no faster when it is asked to")
    elif abs(sizes[2] - sizes[1]) < abs(sizes[2] - sizes[0]):
        yield fail(
            "A request without `speed` was spoken at the speed of the request before it.",
            sent=quote.sent(after.sent),
            received=f"{sizes[2]} bytes of audio; before, the same request gave {sizes[0]}, and"
            f" {sizes[1]} at speed 2.0",
            legal="the default speed, 1.0",
            advice="Take every field that is absent from the defaults, not from what came before.",
        )
    else:
        yield passed()


@check("audio.speed", "spoken-texts")
def speed(evidence: Sequence[Account]) -> Judgement:
    """A higher speed gives shorter audio."""
    found = (
        judgement
        for account in evidence
        for judgement in _follows_speed(spoken(account.dialogues, "audio.speaks_text"))
    )
    return settle(found, evidence, "no text was spoken at two speeds")


def _follows_speed(heard: Mapping[str, Utterance]) -> Iterator[Judgement]:
    slow, fast = heard.get("slow"), heard.get("fast")
    if slow is None or fast is None:
        return
    if len(fast.pcm) < len(slow.pcm):
        yield passed()
        return
    yield fail(
        "The same text is no shorter at speed 2.0 than at 0.5.",
        sent=quote.sent(fast.sent),
        received=f"{len(fast.pcm)} bytes at 2.0, {len(slow.pcm)} bytes at 0.5",
        legal="shorter audio at a higher speed",
        advice="Pass `speed` to the engine, or stretch the audio.",
    )


def came_early(utterance: Utterance, rtt: float, *, enough: bool) -> Iterator[Judgement]:
    """Whether the first audio of a long text came well before the last.

    `rtt` is the round trip in seconds; `enough` tells whether there was audio enough to tell.
    """
    if not utterance.audio:
        return
    # The way there and back says nothing of when the audio was made.
    first = max(0.0, utterance.audio[0].t - utterance.sent.t - rtt)
    last = max(0.0, utterance.audio[-1].t - utterance.sent.t - rtt)
    if not enough:
        yield not_exercised("The long text gave too little audio to tell.")
    elif last < _LEAST_TIME_S and len(utterance.audio) > 1:
        yield passed("all of it came at once, too fast to tell")
    elif first <= _EARLY * last:
        yield passed(f"first audio after {first:.3f} s, last after {last:.3f} s")
    else:
        yield fail(
            f"The first audio came after {first:.2f} s, when {first / last:.0%} of the time"
            " to the last had passed.",
            sent=quote.sent(utterance.sent),
            received=f"{len(utterance.audio)} chunks, all within {last - first:.2f} s",
            legal="first audio well before the last",
            advice="Send each piece of audio as soon as the engine has made it.",
        )


@check("audio.streamed", "streamed")
def streamed(evidence: Sequence[Account]) -> Judgement:
    """The first chunk of a long text comes well before the last."""

    def find() -> Iterator[Judgement]:
        for account in evidence:
            for dialogue in account.dialogues:
                for utterance in spoken([dialogue], "audio.streamed").values():
                    size = sum(len(chunk.data) for chunk in utterance.audio)
                    enough = size >= _LEAST_AUDIO_BYTES
                    yield from came_early(utterance, dialogue.rtt, enough=enough)

    return settle(find(), evidence, "no long text was spoken")


@check("audio.unspeakable", "unspeakable", general=True)
@on_sessions("no such text could be sent")
def unspeakable(dialogue: Dialogue) -> Iterator[Judgement]:
    """Text with nothing to speak completes without audio."""
    for utterance in dialogue.utterances.values():
        case = utterance.sent.case
        if case is None or case.check != "audio.unspeakable":
            continue
        complete = utterance.complete
        refusal = utterance.rejection or utterance.terminal
        legal = "`synthesis_start`, no audio, `synthesis_complete` with `audio_bytes` 0"
        advice = "Complete text that has nothing to speak, with no audio; it is no error."
        if complete is not None and not utterance.audio and not utterance.late_audio:
            yield passed()
        elif complete is not None:
            yield fail(
                f"Text with nothing to speak ({case.name}) has audio.",
                sent=quote.sent(utterance.sent),
                received=f"{len(utterance.pcm)} bytes of audio",
                legal=legal,
                advice=advice,
            )
        elif refusal is not None and refusal.code in case.codes:
            yield not_exercised("The format is not offered.")
        elif refusal is not None or dialogue.passed_over(utterance):
            yield fail(
                f"Text with nothing to speak ({case.name}) did not complete.",
                sent=quote.sent(utterance.sent),
                received=quote.chunk(refusal),
                legal=legal,
                advice=advice,
            )
