"""The line on the progress of a run: short, and of printable characters."""

from __future__ import annotations

import argparse
import signal

import pytest
from utterwire_conformance.interruption import Interruption
from utterwire_conformance.number import positive_number, whole_number
from utterwire_conformance.progress import Progress


def test_the_line_tells_what_is_waited_for() -> None:
    progress = Progress("waiting for the endpoint to be ready")
    assert progress.line(80) == "waiting for the endpoint to be ready"
    progress.total = 3
    progress.begin("idle")
    progress.begin("order")
    assert progress.line(80) == "0 of 3 scenarios played; waiting for idle, order"
    progress.finish("idle")
    assert progress.line(80) == "1 of 3 scenarios played; waiting for order"
    progress.finish("order")
    assert progress.line(80) == "2 of 3 scenarios played"


def test_the_line_fits_and_holds_nothing_that_a_terminal_obeys() -> None:
    progress = Progress("\x1b[31m" + "long " * 40)
    line = progress.line(30)
    assert len(line) == 30
    assert line.endswith("…")
    assert line.startswith("?[31m")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_the_others_hurry(number: signal.Signals) -> None:
    hurried: list[None] = []
    before = {
        each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    # Where the tests themselves run in the background, shells have the signal ignored.
    signal.signal(number, signal.SIG_DFL)
    interruption = Interruption(lambda: hurried.append(None))
    try:
        interruption.begin()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert interruption.came
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert len(hurried) == 2
        interruption.end()
        signal.raise_signal(number)
        assert len(hurried) == 3
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_without_a_signal_all_is_as_before() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    interruption = Interruption(lambda: None)
    interruption.begin()
    interruption.end()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    assert not interruption.came


def test_what_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption = Interruption(lambda: None)
    try:
        interruption.begin()
        signal.raise_signal(signal.SIGHUP)
        assert not interruption.came
    finally:
        interruption.end()
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "x", "\uff11", "9" * 30])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        whole_number(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "x"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        positive_number(text)


def test_numbers() -> None:
    assert whole_number("12") == 12
    assert positive_number("0.5") == 0.5
