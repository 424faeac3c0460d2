"""Audio: does it follow the text, the speed and the fields asked for."""

from __future__ import annotations

from utterwire_conformance.stage import Stage, scenario
from utterwire_conformance.transcript import Case

__all__ = ["UNSPEAKABLE", "audio_fields", "spoken_texts", "streamed", "unspeakable"]

UNSPEAKABLE = {
    "full stops": "...",
    "punctuation of many scripts": "\u2014?!\u2026\u3002\u061f\u00bf\u300c\u300d\u0964",
    # They have names, and many engines read these out; they are punctuation all the same (Po, Pc).
    "punctuation that has a name": "& @ % # * / _",
    "zero width space": "\u200b",
    "emoji": "\U0001f600\U0001f680",
    "flag, skin tone, variation selector": "\U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \ufe0f",
    "byte order mark in text": "\ufeff",
}
"""Texts with nothing to speak, by what they are."""


@scenario()
async def spoken_texts(stage: Stage) -> None:
    """Two texts, one of them twice, both together, at two speeds, and ended in two digits."""
    texts = stage.texts
    one, two = texts.sample(0), texts.sample(1)
    check = "audio.speaks_text"
    async with stage.relay() as relay:
        for name, text, fields in (
            ("one text", one, {}),
            ("the same again", one, {}),
            ("another text", two, {}),
            ("both texts", f"{one} {two}", {}),
            ("slow", one, {"speed": 0.5}),
            ("fast", one, {"speed": 2.0}),
            ("as before", one, {}),
            # Alike in every way but one word, in whatever language.
            ("ends in 2", f"{one} 2.", {}),
            ("ends in 8", f"{one} 8.", {}),
        ):
            session = await relay.session()
            seq = await session.send(
                stage.request(text, **fields), case=Case(name, check, "accept")
            )
            if not await stage.ended(session, seq):
                break


@scenario()
async def unspeakable(stage: Stage) -> None:
    """Texts with nothing to speak, then one with something."""
    check = "audio.unspeakable"
    async with stage.relay() as relay:
        for name, text in UNSPEAKABLE.items():
            session = await relay.session()
            seq = await session.send(stage.request(text), case=Case(name, check, "accept"))
            if not await stage.ended(session, seq):
                break
        await stage.speak(await relay.session(), stage.texts.shortest)


@scenario(heavy=True)
async def streamed(stage: Stage) -> None:
    """A text of a minute or so: when does its first audio come. Before it a part of that text, to
    be compared with the whole."""
    async with stage.relay() as relay:
        for characters, case in (
            (560, Case("less than half of it", "audio.speaks_text", "accept")),
            (1200, Case("a long text", "audio.streamed", "accept")),
        ):
            session = await relay.session()
            request = stage.request(stage.texts.of_length(characters))
            await stage.ended(session, await session.send(request, case=case))


@scenario()
async def audio_fields(stage: Stage) -> None:
    """Every field asked for is what `synthesis_start` names; without it, the default."""
    claims = stage.claims
    wanted: list[dict[str, object]] = [{}, {"format": "pcm_s16le"}, {"sample_rate": 24_000}]
    wanted += [{"voice": voice} for voice in sorted(claims.voices or ())[:3]]
    wanted += [{"sample_rate": rate} for rate in sorted(claims.sample_rates or ())[:4]]
    async with stage.relay() as relay:
        for fields in wanted:
            session = await relay.session()
            name = ", ".join(f"{key} {value}" for key, value in fields.items()) or "defaults"
            seq = await session.send(
                stage.request(stage.texts.shortest, **fields),
                case=Case(name, "start.fields", "accept"),
            )
            if not await stage.ended(session, seq):
                break
        # The default voice, by its name.
        session = await relay.session()
        first = session.dialogue.utterances.get(1)
        voice = first.start.fields.get("voice") if first is not None and first.start else None
        if isinstance(voice, str):
            case = Case(f"voice {voice}, by name", "start.fields", "accept")
            request = stage.request(stage.texts.shortest, voice=voice)
            await stage.ended(session, await session.send(request, case=case))
            # Names that only look alike are other voices, if there are any.
            known = claims.voices or (voice,)
            for other in (voice.swapcase(), f"{voice} ", f" {voice}"):
                if other not in known:
                    session = await relay.session()
                    case = Case(
                        f"not {voice}", "reject.invalid_voice", "either", ("invalid_voice",)
                    )
                    request = stage.request(stage.texts.shortest, voice=other)
                    await stage.ended(session, await session.send(request, case=case))
        # Text outside the Basic Multilingual Plane is counted in code points.
        wide = f"{stage.texts.shortest} \U0001f600e\u0301\U00020000"
        # It is counted as sent, and not as it may be trimmed or normalised for speaking.
        around = f"  \n{stage.texts.shortest}\r\n\u3000"
        for name, text in (("wide text", wide), ("white space around", around)):
            session = await relay.session()
            case = Case(name, "complete.characters", "accept")
            await stage.ended(session, await session.send(stage.request(text), case=case))
