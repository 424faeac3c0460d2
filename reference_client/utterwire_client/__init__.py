"""The reference client of Utterwire: speech from an endpoint, as it is made.

    async with connect("ws://127.0.0.1:8080") as session:
        async for event in session.synthesize("Hello."):
            if isinstance(event, Audio):
                play(event.data)

See ``reference_client/README.md``. Sessions need the extra ``client``.
"""

import logging

from utterwire_client.chunker import IncrementalSentenceChunker
from utterwire_client.deadlines import Deadlines
from utterwire_client.endpoints import Endpoint, find_endpoint
from utterwire_client.errors import (
    AudioMissing,
    ConnectFailed,
    DeadlineExceeded,
    ExtraMissing,
    InterruptUnavailable,
    PeerViolation,
    RequestInvalid,
    SessionLost,
    UtteranceCancelled,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, EndpointInfo, Event, Marks, Start, Word
from utterwire_client.session import Session, connect
from utterwire_client.speakable import SpeakableState, speakable
from utterwire_client.transport import Headers, Transport, TransportClosed
from utterwire_client.utterance import Utterance
from utterwire_client.wav import wav_header

__all__ = [
    "Audio",
    "AudioMissing",
    "Complete",
    "ConnectFailed",
    "DeadlineExceeded",
    "Deadlines",
    "Endpoint",
    "EndpointInfo",
    "Event",
    "ExtraMissing",
    "Headers",
    "IncrementalSentenceChunker",
    "InterruptUnavailable",
    "Marks",
    "PeerViolation",
    "RequestInvalid",
    "Session",
    "SessionLost",
    "SpeakableState",
    "Start",
    "Transport",
    "TransportClosed",
    "Utterance",
    "UtteranceCancelled",
    "UtteranceFailed",
    "UtteranceRejected",
    "UtterwireError",
    "Word",
    "connect",
    "find_endpoint",
    "speakable",
    "wav_header",
]

# What the WebSocket library has to say of a broken connection is said by our exceptions.
logging.getLogger("utterwire_client.websocket").addHandler(logging.NullHandler())
