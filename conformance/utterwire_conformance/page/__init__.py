"""The report as one page of HTML: self-contained, for a person, in whatever browser."""

from __future__ import annotations

from .rendering import main_page, render_page, write_page

__all__ = ["main_page", "render_page", "write_page"]
