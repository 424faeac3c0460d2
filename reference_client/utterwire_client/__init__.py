"""The reference client of Utterwire: speech from an endpoint, as it is made.

    async with connect("ws://127.0.0.1:8080") as session:
        async for event in session.synthesize("Hello."):
            if isinstance(event, Audio):
                play(event.data)

See ``reference_client/README.md``. Sessions need the extra ``client``.
"""

import logging

from utterwire_client.audio_event import AudioEvent, audio_events, error_event
from utterwire_client.backend import Backend
from utterwire_client.chunker import IncrementalSentenceChunker
from utterwire_client.deadlines import Deadlines
from utterwire_client.endpoints import Endpoint, find_endpoint
from utterwire_client.errors import (
    AccessDenied,
    AudioMissing,
    ConnectFailed,
    ContainerRefused,
    CredentialsUnusable,
    DeadlineExceeded,
    EndpointMissing,
    EndpointNotReady,
    ExtraMissing,
    InterruptUnavailable,
    InvocationInvalid,
    PeerViolation,
    PlatformFailed,
    PlatformUnavailable,
    RequestInvalid,
    SessionLost,
    SpeechIncomplete,
    Throttled,
    UtteranceCancelled,
    UtteranceFailed,
    UtteranceRejected,
    UtterwireError,
)
from utterwire_client.events import Audio, Complete, EndpointInfo, Event, Marks, Start, Word
from utterwire_client.interruption import Interruption
from utterwire_client.playback import Gap, Playback
from utterwire_client.player import DevicePlayer, Player, StreamPlayer, WavPlayer
from utterwire_client.relay import Relay
from utterwire_client.sentence import Lost, Sentence, Skipped, SpeechEvent, Spoken
from utterwire_client.session import Session, connect
from utterwire_client.speakable import SpeakableState, speakable
from utterwire_client.speech import Speech, SpeechOptions
from utterwire_client.transport import Headers, Transport, TransportClosed
from utterwire_client.utterance import Utterance
from utterwire_client.wav import wav_header

__all__ = [
    "AccessDenied",
    "Audio",
    "AudioEvent",
    "AudioMissing",
    "Backend",
    "Complete",
    "ConnectFailed",
    "ContainerRefused",
    "CredentialsUnusable",
    "DeadlineExceeded",
    "Deadlines",
    "DevicePlayer",
    "Endpoint",
    "EndpointInfo",
    "EndpointMissing",
    "EndpointNotReady",
    "Event",
    "ExtraMissing",
    "Gap",
    "Headers",
    "IncrementalSentenceChunker",
    "InterruptUnavailable",
    "Interruption",
    "InvocationInvalid",
    "Lost",
    "Marks",
    "PeerViolation",
    "PlatformFailed",
    "PlatformUnavailable",
    "Playback",
    "Player",
    "Relay",
    "RequestInvalid",
    "Sentence",
    "Session",
    "SessionLost",
    "Skipped",
    "SpeakableState",
    "Speech",
    "SpeechEvent",
    "SpeechIncomplete",
    "SpeechOptions",
    "Spoken",
    "Start",
    "StreamPlayer",
    "Throttled",
    "Transport",
    "TransportClosed",
    "Utterance",
    "UtteranceCancelled",
    "UtteranceFailed",
    "UtteranceRejected",
    "UtterwireError",
    "WavPlayer",
    "Word",
    "audio_events",
    "connect",
    "error_event",
    "find_endpoint",
    "speakable",
    "wav_header",
]

# What the WebSocket library has to say of a broken connection is said by our exceptions.
logging.getLogger("utterwire_client.websocket").addHandler(logging.NullHandler())
