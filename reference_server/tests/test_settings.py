"""Settings refuse what would not conform or cannot be."""

from __future__ import annotations

import pytest
from utterwire_server.settings import Settings


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_text_chars": 4_095}, "max_text_chars is 4095; it must be 4096 to"),
        ({"max_message_bytes": 65_535}, "max_message_bytes"),
        ({"max_message_bytes": 10**9}, "max_message_bytes"),
        ({"max_request_id_chars": 127}, "max_request_id_chars"),
        ({"max_waiting": 7}, "max_waiting"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"max_queued_chars": 4_000}, "it must be at least max_text_chars, 4096"),
        ({"max_queued_work_s": 0.0}, "max_queued_work_s is 0; it must be above 0"),
        ({"max_queued_work_s": float("nan")}, "max_queued_work_s is nan"),
        ({"send_buffer_bytes": 262_144}, "send_buffer_bytes"),
        ({"idle_timeout_s": 0.0}, "idle_timeout_s"),
        ({"stall_timeout_s": float("nan")}, "stall_timeout_s"),
        ({"block_timeout_s": float("inf")}, "block_timeout_s"),
        ({"body_timeout_s": -1.0}, "body_timeout_s"),
        ({"shutdown_timeout_s": -1.0}, "shutdown_timeout_s"),
        ({"shutdown_timeout_s": float("nan")}, "shutdown_timeout_s"),
        ({"profiles": frozenset({"core", "telepathy"})}, "no profile 'telepathy'"),
        ({"profiles": frozenset({"http"})}, "without core"),
    ],
)
def test_what_cannot_be(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Settings(**values)  # type: ignore[arg-type]


def test_what_can_be() -> None:
    Settings(max_waiting=8, shutdown_timeout_s=0.0, profiles=frozenset({"core"}))
