"""``utterwire``: speech from an endpoint on the command line.

Exit codes: see :class:`ExitCode`. Errors are one line on stderr.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from utterwire_client.cli.doctor import add_doctor, doctor
from utterwire_client.cli.exit_code import ExitCode
from utterwire_client.cli.latency import add_latency, latency
from utterwire_client.cli.lines import add_lines, lines
from utterwire_client.cli.release import release
from utterwire_client.cli.say import add_say, say
from utterwire_client.progress import Progress, printable

__all__ = ["ExitCode", "main"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{printable(f'{self.prog}: {message}')} (see {self.prog} -h)\n")


_COMMANDS: dict[str, Callable[[argparse.Namespace, Progress], int]] = {
    "say": say,
    "lines": lines,
    "latency": latency,
    "doctor": doctor,
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="utterwire", description="Speech from an Utterwire endpoint.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"utterwire {release()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_say(
        commands.add_parser(
            "say",
            help="speak a text, a file or what is typed: into a file, a pipe or the loudspeaker",
            description="Have an endpoint speak a text, and keep or play the audio. Text from "
            "stdin or a file is spoken sentence by sentence, each as soon as it is complete; what "
            "is only to be seen (Markdown, code, emoji) is left out.",
            epilog="Exit status: 0 done; 1 the endpoint failed or was lost; 2 the command line, "
            "the endpoint file, the text or the output cannot be used; 3 no connection; 4 the "
            "endpoint does not accept the request; 5 the endpoint kept silent; 130 interrupted; "
            "141 nobody reads the output; 143 terminated. What came of an utterance that failed is "
            "kept beside the output as NAME.partial.wav.",
            allow_abbrev=False,
        )
    )
    add_lines(
        commands.add_parser(
            "lines",
            help="speak each line of stdin as it comes, for programs",
            description="Speak each line of stdin (UTF-8), one after the other, until stdin ends. "
            "The audio goes to stdout as it comes, without headers. An empty line is an "
            "interruption: what is being spoken and what waits is stopped. What befalls each line "
            'is told in JSON lines: {"event": "start", "utterance": 1, "sample_rate": 24000, '
            '"format": "pcm_s16le"}, then "complete", "failed" or "cancelled" with "audio_bytes", '
            'how much of it went to stdout; "warning" for what the endpoint did wrong.',
            epilog="Exit status: 0 all was spoken or interrupted, else that of the first failure, "
            "as for `say`.",
            allow_abbrev=False,
        )
    )
    add_latency(
        commands.add_parser(
            "latency",
            help="show where the time goes between a text and its sound",
            description="Speak a text as a language model would give it, and show for each "
            "sentence when its text was ready, it was sent, its first byte came, its first sound, "
            "when it would have been heard, and gaps. First byte: request sent to first audio "
            "chunk. First sound: the same, and the silence that the audio begins with. Heard: it "
            "left the player's clock. Gap: silence before a sentence because it was late.",
            epilog="Exit status: as for `say`. With --browser it is 1, too, if a run failed; with "
            "--compare, if medians lie further apart.",
            allow_abbrev=False,
        )
    )
    add_doctor(
        commands.add_parser(
            "doctor",
            help="look an endpoint over, with advice",
            description="See whether an endpoint can be reached, which profiles it claims and "
            "shows, how soon it speaks, its chunks, TLS, clock and compression. It is asked to "
            "speak some short texts.",
            epilog="Exit status: 0 it works, with or without advice; 1 something is broken; 2 the "
            "command line or the endpoint file cannot be used; 3 no connection.",
            allow_abbrev=False,
        )
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status (:class:`ExitCode`)."""
    arguments = _parser().parse_args(argv)
    progress = Progress(sys.stderr, quiet=arguments.quiet)
    return _COMMANDS[arguments.command](arguments, progress)
