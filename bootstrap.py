"""Set up what is needed and run it, from a clone and a bare ``python3`` of 3.11 or newer.

    python3 bootstrap.py conformance     pytest conformance --endpoint reference
    python3 bootstrap.py all             tests on every Python found, and the checks: as CI does
    python3 bootstrap.py ENV[,ENV...]    one or some of the environments of tox.ini
    python3 bootstrap.py ENV -- ARGS     the same, with other arguments for what it runs

Nothing is installed outside this folder: tox lives in ``.tox/.bootstrap``, which also works
where the system's pip refuses to install ("externally managed").  The standard library is all
that this file uses, and it parses on Python 3.6 too, to say what is wrong there.
"""

import os
import shutil
import signal
import subprocess
import sys

__all__ = ["SetUpError", "main"]

ROOT = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = os.path.join(ROOT, ".tox", ".bootstrap")
MARK = os.path.join(ENVIRONMENT, "installed")
RESULT = os.path.join(".tox", "result.json")
TOX = "tox>=4.26,<5"
OLDEST = (3, 11)
CANNOT_SET_UP = 3


class SetUpError(Exception):
    """Why the environment for tox cannot be made, in one line, with what to do."""


def python_of(environment: str) -> str:
    """Path of the interpreter in a virtual environment."""
    if os.name == "nt":
        return os.path.join(environment, "Scripts", "python.exe")
    return os.path.join(environment, "bin", "python")


def telling_line(output: str) -> str:
    """The line of a failed command's output that says most about why."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no output"])[-1]


def attempt(command: "list[str]") -> "str | None":
    """Run a command quietly: None if it succeeded, otherwise the line that says why not."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return None if done.returncode == 0 else telling_line(done.stdout.decode(errors="replace"))


def make_environment() -> "list[str]":
    """A virtual environment with pip in reach; the command that runs that pip is returned.

    Debian ships ``venv`` and ``ensurepip`` apart from ``python3``, so that the ways that may
    be there are tried in turn.  Raises `SetUpError` if none is.
    """
    inside = [python_of(ENVIRONMENT), "-m", "pip"]
    outside = [sys.executable, "-m", "pip", "--python", python_of(ENVIRONMENT)]
    ways = [
        ([sys.executable, "-m", "venv", ENVIRONMENT], inside),
        ([sys.executable, "-m", "venv", "--without-pip", ENVIRONMENT], outside),
        ([sys.executable, "-m", "virtualenv", "--quiet", ENVIRONMENT], inside),
    ]
    for create, pip in ways:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        if attempt(create) is None and attempt([*pip, "--version"]) is None:
            return pip
    raise SetUpError(
        f"{sys.executable} can make no virtual environment with pip in it; "
        "install its venv module (on Debian and Ubuntu: apt install python3-venv)"
    )


def identity() -> str:
    """What the environment is made from; one of another identity is made anew."""
    return f"{TOX} {sys.version.split()[0]} {os.path.realpath(sys.executable)} {ROOT}\n"


def usable() -> bool:
    """Whether a complete environment of this identity is there."""
    try:
        with open(MARK, encoding="utf-8") as mark:
            same = mark.read() == identity()
    except OSError:
        return False
    return same and attempt([python_of(ENVIRONMENT), "-m", "tox", "--version"]) is None


def set_up() -> None:
    """Install tox into its own environment, unless that is done already."""
    if usable():
        return
    print(f"bootstrap: installing tox into {ENVIRONMENT}", file=sys.stderr, flush=True)
    problem = attempt([*make_environment(), "install", "--quiet", TOX])
    if problem is not None:
        raise SetUpError(f"pip could not install {TOX}: {problem}")
    # Written last: an interrupted run leaves no mark and starts over.
    with open(MARK, "w", encoding="utf-8") as mark:
        mark.write(identity())


def tox_arguments(arguments: "list[str]") -> "list[str]":
    """The arguments of ``tox`` for the arguments given here.

    ``all`` is every environment of ``env_list``; what follows the first word goes to tox as
    it is, and from ``--`` on to the command that the environment runs.
    """
    chosen = [] if arguments[0] == "all" else ["-e", arguments[0]]
    return ["run", "--result-json", RESULT, *chosen, *arguments[1:]]


def main(arguments: "list[str]") -> int:
    """Run the chosen environments; the exit code is that of tox, or 3 if set-up failed."""
    if not arguments or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    if sys.version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        print(
            f"bootstrap: Python {needed} or newer is needed, and this is "
            f"{sys.version.split()[0]}; call this file with a newer one, "
            f"as in: python{needed} bootstrap.py {' '.join(arguments)}",
            file=sys.stderr,
        )
        return CANNOT_SET_UP
    try:
        set_up()
    except (SetUpError, OSError) as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return CANNOT_SET_UP
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell starts what runs in the background. All that runs from here would inherit it,
        # and tests of Ctrl-C would wait for an end that never comes.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = subprocess.call(
            [python_of(ENVIRONMENT), "-m", "tox", *tox_arguments(arguments)], cwd=ROOT
        )
    except KeyboardInterrupt:
        return 130
    # Ended by a signal: the code that a shell would give.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
