"""What ``say`` shows: one rewritten line on a terminal, plain lines elsewhere."""

import io

import pytest
from utterwire_client import Start
from utterwire_client.progress import Progress, printable

PCM = Start(sample_rate=8000, format="pcm_s16le", voice="v")


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(screen: Screen, *, quiet: bool = False, start: Start = PCM) -> str:
    clock = Clock()
    progress = Progress(screen, quiet=quiet, clock=clock)
    progress.requested()
    progress.began(start)
    for _ in range(24):
        clock.now += 0.06
        progress.audio(16000)
    progress.note("careful")
    progress.done("hello.wav")
    return screen.getvalue()


def test_plain_lines() -> None:
    assert run(Screen(False)).splitlines() == [
        "first audio after 0.060 s",
        "10.00 s of audio",
        "20.00 s of audio",
        "careful",
        "24.00 s of audio in hello.wav (1.44 s, first byte after 0.060 s)",
    ]


def test_a_terminal() -> None:
    shown = run(Screen(True))
    assert shown.startswith("\r1.00 s of audio, first after 0.060 s\x1b[K\r")
    # A line for people clears the rewritten one first, and only once.
    assert "\r\x1b[Kcareful\n24.00 s of audio in" in shown
    # Drawn ten times a second at most, however many chunks come.
    assert shown.count("\x1b[K") <= 14


def test_quiet() -> None:
    assert run(Screen(False), quiet=True) == "careful\n"
    assert run(Screen(True), quiet=True) == "careful\n"


def test_a_format_without_a_length() -> None:
    shown = run(Screen(False), start=Start(sample_rate=24000, format="mp3", voice=None))
    assert "384000 bytes of mp3 in hello.wav" in shown


def test_nothing_came() -> None:
    screen = Screen(False)
    progress = Progress(screen, quiet=False, clock=Clock())
    assert progress.amount() == "0 bytes of audio"
    progress.began(PCM)
    progress.done("-")
    assert screen.getvalue() == "0.00 s of audio in - (0.00 s)\n"


@pytest.mark.parametrize("nasty", ["\x1b[2Jgone", "a\nb", "a\rb", "\x9b2J", "‮reversed", "\x07"])
def test_nothing_reaches_the_terminal_unescaped(nasty: str) -> None:
    assert printable(nasty).isprintable()
