"""What the package offers, by name."""

import utterwire_client


def test_exported_names() -> None:
    assert sorted(utterwire_client.__all__) == sorted(
        [
            "Audio",
            "AudioMissing",
            "Backend",
            "Complete",
            "ConnectFailed",
            "DeadlineExceeded",
            "Deadlines",
            "DevicePlayer",
            "Endpoint",
            "EndpointInfo",
            "Event",
            "ExtraMissing",
            "Gap",
            "Headers",
            "IncrementalSentenceChunker",
            "InterruptUnavailable",
            "Interruption",
            "Lost",
            "Marks",
            "PeerViolation",
            "Playback",
            "Player",
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
            "Transport",
            "TransportClosed",
            "Utterance",
            "UtteranceCancelled",
            "UtteranceFailed",
            "UtteranceRejected",
            "UtterwireError",
            "WavPlayer",
            "Word",
            "connect",
            "find_endpoint",
            "speakable",
            "wav_header",
        ]
    )
    assert all(hasattr(utterwire_client, name) for name in utterwire_client.__all__)
