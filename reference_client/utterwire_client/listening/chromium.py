"""The browser: a headless Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from utterwire_client.errors import RequestInvalid, UtterwireError
from utterwire_client.listening.series import Turn
from utterwire_client.listening.site import import_extra

__all__ = ["CHROMIUM_VARIABLE", "BrowserFailed", "Chromium", "find_chromium"]

#: Environment variable with the path of the browser.
CHROMIUM_VARIABLE: Final = "UTTERWIRE_CHROMIUM"

_NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chromium-headless-shell",
)
_OPTIONS: Final = (
    # Sound begins with a click, as it does for a listener.
    "--autoplay-policy=document-user-activation-required",
    "--disable-background-networking",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
)
#: What is told of by a trace: threads and their tasks, the audio thread, the page's scripts.
_TRACED: Final = (
    "toplevel",
    "audio",
    "webaudio",
    "devtools.timeline",
    "v8.execute",
    "blink.user_timing",
)
_START_MS: Final = 60_000


class BrowserFailed(UtterwireError):
    """The browser could not be started, or ended."""


def find_chromium(given: Path | None, environ: Mapping[str, str] | None = None) -> Path:
    """The browser: ``given``, else that of ``UTTERWIRE_CHROMIUM``, else the first that is found on
    the path. None is downloaded. Raises :class:`RequestInvalid`."""
    environ = os.environ if environ is None else environ
    named = given or environ.get(CHROMIUM_VARIABLE)
    if named:
        found = shutil.which(str(named))
        if found is None:
            raise RequestInvalid(f"{named} is no program: give the path of a Chromium")
        return Path(found)
    for name in _NAMES:
        found = shutil.which(name, path=environ.get("PATH"))
        if found is not None:
            return Path(found)
    raise RequestInvalid(
        "there is no Chromium here: install it (on Debian: apt install chromium), or name it with "
        f"--chromium PATH or {CHROMIUM_VARIABLE}"
    )


def _unasked(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A signal that ends this ends the driver, too, if it came from a terminal: what was asked of
    it then fails, and nobody waits for that."""
    if "Connection closed" not in str(context.get("exception")):
        loop.default_exception_handler(context)


class Chromium:
    """A browser with the page open, and its sound on."""

    def __init__(self, page: Any, version: str, told: Mapping[str, Any]) -> None:
        self._page = page
        self._version = version
        self._told = told
        self._complaints: list[str] = []
        page.on("pageerror", lambda error: self._complaints.append(str(error)))

    @classmethod
    @asynccontextmanager
    async def open(
        cls, program: Path, address: str, *, trace: Path | None = None
    ) -> AsyncIterator[Chromium]:
        """Start it, and click; what it does from then on is kept in the file ``trace``. Raises
        :class:`BrowserFailed`, :class:`ExtraMissing`."""
        api = import_extra("playwright.async_api")
        try:
            async with api.async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=program, args=list(_OPTIONS), timeout=_START_MS
                )
                try:
                    page = await browser.new_page()
                    page.set_default_timeout(_START_MS)
                    await page.goto(address)
                    await page.click("#start")
                    await page.wait_for_selector("body[data-sound]")
                    sound = await page.get_attribute("body", "data-sound")
                    if sound != "running":
                        raise BrowserFailed(f"{program.name} makes no sound: {sound}")
                    if trace is not None:
                        await browser.start_tracing(page=page, path=trace, categories=[*_TRACED])
                    yield cls(page, browser.version, await page.evaluate("window.browser()"))
                    if trace is not None:
                        await browser.stop_tracing()
                finally:
                    # It may have ended by itself, by the same signal as this.
                    with suppress(api.Error):
                        await browser.close()
        except asyncio.CancelledError:
            asyncio.get_running_loop().set_exception_handler(_unasked)
            raise
        except api.Error as exc:
            line = str(exc).strip().partition("\n")[0]
            raise BrowserFailed(f"{program.name} failed: {line}") from None

    @property
    def described(self) -> dict[str, Any]:
        """As the schema has it."""
        return {"name": "chromium", "version": self._version, **self._told}

    async def listen(
        self, turn: Turn, *, rate: float | None, voice: str | None, silence_s: float
    ) -> dict[str, Any]:
        """Listen to an answer; what the page tells of it, with a ``failure`` or without."""
        job = {
            "parts": list(turn.answer.parts),
            "interrupt_after_s": turn.answer.interrupt_after_s,
            "ask": turn.way.ask,
            "transport": turn.way.transport,
            "rate": rate,
            "voice": voice,
            "silence_s": silence_s,
        }
        await self._page.evaluate("job => window.listen(job)", job)
        if await self._page.evaluate("() => window.due"):
            await self._page.click("#interrupt")
        told: dict[str, Any] = await self._page.evaluate("() => window.told")
        if self._complaints:
            raise BrowserFailed(f"the page failed: {self._complaints[0]}")
        return told
