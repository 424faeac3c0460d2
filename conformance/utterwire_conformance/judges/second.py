"""The oracle as a second judge of every session: a state machine written from the prose alone.

The judges beside this module each look for breaches of one rule. The oracle follows the session
as a whole and so sees what nobody thought to look for. It is given no times: what depends on a
clock is left to the judges that know what the scenario was about. Where a scenario says `quiet`,
though, it waited for all that was due, and what is missing is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from utterwire_conformance.check import Account
from utterwire_conformance.classification import Breach
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.oracle import Oracle
from utterwire_conformance.verdict import Judgement, fail

from . import quote

__all__ = ["breaches", "second_opinion"]


def breaches(dialogue: Dialogue) -> tuple[Breach, ...]:
    """What the oracle finds in a session; nothing where the suite broke a rule on purpose.

    The answer is kept with the dialogue: every check asks.
    """
    if dialogue.breaches is None:
        dialogue.breaches = _consult(dialogue)
    return dialogue.breaches


def _consult(dialogue: Dialogue) -> tuple[Breach, ...]:
    if dialogue.abused or "too big" in dialogue.facts or not dialogue.is_open:
        return ()
    oracle = Oracle(dialogue.claims)
    sent = {message.index: message for message in dialogue.sent}
    chunks = {chunk.ended_at: chunk for chunk in dialogue.chunks}
    for index, entry in enumerate(dialogue.entries):
        if index in sent:
            message = sent[index]
            kind = "text" if message.kind == "text" else "binary"
            oracle.sent(message.data, "text" if kind == "text" else "binary", frames=message.frames)
        elif index in chunks:
            chunk = chunks[index]
            oracle.received(
                chunk.data, "text" if chunk.kind == "text" else "binary", frames=chunk.frames
            )
        elif entry.text == "shutdown: begins":
            oracle.shutdown_told()
        elif (entry.text or "").startswith("quiet: "):
            oracle.finish(quiet=True)
        elif entry.kind == "close" and entry.dir == "out":
            oracle.client_closed()
        elif entry.kind == "close":
            oracle.closed(entry.code)
        elif entry.kind == "eof" and entry.dir == "out":
            oracle.client_lost()
        elif entry.kind == "eof":
            oracle.lost(unasked="quiet" in dialogue.facts)
    return oracle.finish(quiet=False)


def second_opinion(requirement: str, rule: str, evidence: Sequence[Account]) -> Judgement | None:
    """A failure, if the oracle finds the requirement broken in any session; else nothing."""
    for account in evidence:
        for dialogue in account.dialogues:
            for breach in breaches(dialogue):
                if breach.requirement != requirement:
                    continue
                # What was lost when the endpoint hung up for no reason is told by that rule.
                unwaited = "quiet" not in dialogue.facts
                if not (dialogue.hung_up and unwaited and requirement.startswith("close.")):
                    reason = breach.reason[:1].upper() + breach.reason[1:]
                    return fail(
                        f"{reason}.",
                        sent=quote.sent(dialogue.sent[-1] if dialogue.sent else None),
                        received=quote.chunk(dialogue.chunks[-1])
                        if dialogue.chunks
                        else quote.ending(dialogue),
                        legal=rule,
                        advice="Follow the session in the transcript, beside the clause.",
                        scenarios=(account.scenario,),
                    )
    return None
