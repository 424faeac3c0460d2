"""Whether a whole session was legal: a state machine of its own, written from the prose."""

from .session import Oracle, Outlook

__all__ = ["Oracle", "Outlook"]
