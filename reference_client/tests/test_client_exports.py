"""What the package offers, by name."""

import utterwire_client


def test_exported_names() -> None:
    assert sorted(utterwire_client.__all__) == sorted(
        [
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
    )
    assert all(hasattr(utterwire_client, name) for name in utterwire_client.__all__)
