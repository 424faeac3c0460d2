"""What an endpoint does with texts that only look like code, and where it writes texts down."""

from __future__ import annotations

from typing import Final

from utterwire_conformance.stage import Stage, Unplayable, scenario
from utterwire_conformance.transcript import Case

__all__ = ["CODE_LIKE", "plain_texts", "private_text"]

CODE_LIKE: Final = {
    "an expression of a template": "{{ 'la ' * 900 }}",
    "a block of a template": "{% for i in range(900) %}la {% endfor %}",
    "an expression of a script": "${'la '.repeat(900)}",
    "a command": "$(yes la | head -n 900)",
    "a command in backquotes": "`yes la | head -n 900`",
    "a variable": "${PATH} and $HOME",
    "a format string": "%s %n %(name)s {0} {0.__class__}",
    "the path of a file": "/etc/passwd",
    "a path that climbs": "../../../../../../../../etc/passwd",
    "the address of a file": "file:///etc/passwd",
    "markup of a pause": '<speak>See you <break time="40s"/> there.</speak>',
    "markup with an entity": '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "a statement of SQL": "'; DROP TABLE voices; --",
    "a message of the protocol": '{"type": "close"}',
}
"""Texts that mean something to an interpreter, by what they are. Taken for that, most of them
become far longer than they are, or silent for long."""


@scenario()
async def plain_texts(stage: Stage) -> None:
    """A plain text, then each of those that look like code."""
    check = "security.text_is_plain"
    async with stage.relay() as relay:
        session = await relay.session()
        plain = await session.send(
            stage.request(stage.texts.sample(0)), case=Case("a plain text", check, "accept")
        )
        await stage.ended(session, plain)
        for name, text in CODE_LIKE.items():
            session = await relay.session()
            seq = await session.send(stage.request(text), case=Case(name, check, "accept"))
            await stage.ended(session, seq)


@scenario()
async def private_text(stage: Stage) -> None:
    """Texts that are spoken and refused; then the log of the endpoint is searched for them."""
    instance = stage.instance
    if instance.log is None:
        raise Unplayable("only the output of an endpoint that the suite launched can be read")
    samples = stage.texts.samples
    # Put together as they are nowhere else in a run.
    spoken, refused = (f"{samples[2]} {sample} {samples[2]}" for sample in samples[:2])
    async with await stage.session() as session:
        await stage.speak(session, spoken)
        seq = await session.send(stage.request(refused, speed="bad"))
        await stage.ended(session, seq)
    if "http" in stage.claims.profiles:
        await stage.post(stage.request(spoken))
    output = instance.output()
    for name, text in (("spoken", spoken), ("refused", refused)):
        written = any(form in output for form in (text.encode(), ascii(text)[1:-1].encode()))
        stage.recorder.note(f"log: {'holds' if written else 'does not hold'} the text {name}")
