"""The spec peer with one bug planted, of the kind that shows only in a certain state.

`python -m buggy_peer BUG --port N`; each bug says what it is. None is found by a message alone that
any scenario of the suite sends first in a session.
"""

# mypy: ignore-errors
import os
import sys

from spec_peer import messages as m
from spec_peer import server
from spec_peer.session import Session, Utterance


class DuplicateAfterCancel(Session):
    """Once something was cancelled, the id of an unended utterance is accepted again."""

    cancelled = False

    def _cancel(self, name):
        self.cancelled = self.cancelled or bool(self._unended())
        super()._cancel(name)

    def _check_room(self, job):
        if self.cancelled:
            job = m.Speak(job.text, job.voice, job.speed, None)
        super()._check_room(job)


class EndedIdCounts(Session):
    """A `cancel` of an id that has ended counts 1."""

    def __init__(self, *args):
        super().__init__(*args)
        self.known = set()

    def _remove(self, utterance):
        self.known.add(utterance.job.request_id)
        super()._remove(utterance)

    def _send(self, message):
        if message["type"] == "cancel_done" and not message["count"]:
            message = message | {"count": int(message.get("request_id") in self.known - {None})}
        super()._send(message)


class DeepJsonCrashes(Session):
    """JSON of more than 1,000 levels takes the whole process down."""

    def _take(self, raw):
        if raw.count(b"[") > 1_000:
            os._exit(3)
        super()._take(raw)


class ThirdRejectionEnds(Session):
    """The third rejected message ends the session."""

    rejections = 0

    def _reject(self, refusal):
        self.rejections += 1
        if self.rejections == 3:
            self._wire.abort()
        super()._reject(refusal)


class PingForgetsFragments(Session):
    """A ping between two fragments makes it forget the first."""

    async def run(self):
        pong = self._wire.write_pong

        def write_pong(data):
            self._parts.clear()
            pong(data)

        self._wire.write_pong = write_pong
        await super().run()


class SecondCloseAnswered(Session):
    """A second `close` gets a `session_closed` of its own."""

    def _take(self, raw):
        closing = self._close_seq is not None
        super()._take(raw)
        if closing and b'"close"' in raw:
            seq = self._seq
            farewell = {"type": "session_closed", "reason": "client_close", "seq": seq}
            self._send(farewell | {"last_seq": seq})


class KeepaliveNotCounted(Session):
    """A `keepalive` with fields that it does not know is not counted."""

    def _take(self, raw):
        if b'"keepalive"' in raw and raw.count(b":") > 1:
            self._seq -= 1
        super()._take(raw)


class SurrogateWedges(Session):
    """After text with a lone surrogate nothing is spoken any more."""

    wedged = False

    def _reject(self, refusal):
        self.wedged = self.wedged or "surrogate" in refusal.message
        super()._reject(refusal)

    def _act(self, message):
        if not (self.wedged and isinstance(message, m.Speak)):
            super()._act(message)


class RejectedIdKept(Session):
    """The id of a rejected message counts as taken."""

    def __init__(self, *args):
        super().__init__(*args)
        self.taken = set()

    def _reject(self, refusal):
        if refusal.code != "duplicate_request_id":
            self.taken.add(refusal.request_id)
        super()._reject(refusal)

    def _check_room(self, job):
        if job.request_id is not None and job.request_id in self.taken:
            raise m.Refused("duplicate_request_id", "", job.request_id, "synthesize")
        super()._check_room(job)


class CancelReachesOthers(Session):
    """A `cancel` without an id stops what other sessions have, too."""

    def _cancel(self, name):
        super()._cancel(name)
        for other in self._host.sessions if name is None else ():
            for utterance in other._unended():
                other._send(other._about(utterance, "cancelled", audio_bytes=utterance.audio_bytes))
                other._remove(utterance)


class LateHelloObeyed(Session):
    """A `hello` behind a `keepalive` is obeyed."""

    def _act(self, message):
        if isinstance(message, m.Hello) and self._seq == 2:
            self._send(self._session())
        else:
            super()._act(message)


class CloseForgetsTheLast(Session):
    """`close` forgets the last of three or more that wait."""

    def _act(self, message):
        waiting = self._unended()
        if isinstance(message, m.Close) and len(waiting) > 2:
            self._line.remove(waiting[-1])
        super()._act(message)


class AudioAfterCancel(Session):
    """When it cancels the first of several, some audio follows `cancelled`."""

    def _cancel(self, name):
        running = self._unended()[:1]
        several = len(self._unended()) > 1
        super()._cancel(name)
        if running and several and running[0] not in self._unended() and running[0].audio_bytes:
            self._wire.write(self._frames.send_data(bytes(64)))


class BigNumberDrops(Session):
    """A number of more than 300 digits drops the connection."""

    def _take(self, raw):
        if b"9" * 300 in raw or b"0" * 300 in raw:
            self._wire.abort()
        super()._take(raw)


class EmptyFragmentIsEmptyMessage(Session):
    """A message whose first fragment is empty is taken for an empty message."""

    def _collect(self, frame):
        if not self._parts and not frame.message_finished and not frame.payload:
            self._void = True
        if frame.message_finished and getattr(self, "_void", False):
            self._void = False
            self._parts.clear()
            self._take(b"")
            return True
        return super()._collect(frame)


class AbortFreesNothing(Session):
    """A session that is broken off while it speaks makes the next one fall silent."""

    broken = False

    def _forget(self):
        if self._unended() and self._close_seq is None:
            type(self).broken = True
        super()._forget()

    def _act(self, message):
        if type(self).broken and isinstance(message, Utterance | m.Speak):
            type(self).broken = False
            return
        super()._act(message)


BUGS = {
    "duplicate-after-cancel": DuplicateAfterCancel,
    "ended-id-counts": EndedIdCounts,
    "deep-json-crashes": DeepJsonCrashes,
    "third-rejection-ends": ThirdRejectionEnds,
    "ping-forgets-fragments": PingForgetsFragments,
    "second-close-answered": SecondCloseAnswered,
    "keepalive-not-counted": KeepaliveNotCounted,
    "surrogate-wedges": SurrogateWedges,
    "rejected-id-kept": RejectedIdKept,
    "cancel-reaches-others": CancelReachesOthers,
    "late-hello-obeyed": LateHelloObeyed,
    "close-forgets-the-last": CloseForgetsTheLast,
    "audio-after-cancel": AudioAfterCancel,
    "big-number-drops": BigNumberDrops,
    "empty-fragment-is-empty-message": EmptyFragmentIsEmptyMessage,
    "abort-frees-nothing": AbortFreesNothing,
}


def main():
    server.Session = BUGS[sys.argv.pop(1)]
    server.main()


if __name__ == "__main__":
    main()
