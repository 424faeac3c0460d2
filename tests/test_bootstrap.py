"""``bootstrap.py``: what it says where it can't work, and how it hands over to tox.

tox itself is stood in for by a stub in the environment that `bootstrap.py` makes, so that
these tests install nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STUB_TOX = "import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(7)"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with nothing but ``bootstrap.py``."""
    shutil.copy(ROOT / "bootstrap.py", tmp_path)
    return tmp_path


def bootstrap(
    clone: Path, *arguments: str, python_code: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script from another folder, after `python_code` in the same interpreter."""
    script = str(clone / "bootstrap.py")
    code = f"{python_code}\nimport runpy, sys\nsys.argv = {[script, *arguments]!r}\n"
    code += f"runpy.run_path({script!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


# Making an environment without pip is many times faster, and pip is stood in for as well.
FAKE_PIP = """
import subprocess
real = subprocess.run
def run(command, **options):
    if command[1:3] == ["-m", "venv"]:
        fails = {breaks_ensurepip} and "--without-pip" not in command
        command = [*command, "--without-pip"] if not fails else [command[0], "-c", "1/0"]
    elif command[1:3] == ["-m", "pip"]:
        code = {install!r} if "install" in command else ""
        command = [command[0], "-c", code]
    return real(command, **options)
subprocess.run = run
"""


def fake_install(clone: Path, *, succeeds: bool = True, breaks_ensurepip: bool = False) -> str:
    """Code that puts a stub in tox's place when `bootstrap.py` lets pip install it."""
    site = f"{clone}/.tox/.bootstrap/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    install = f"open({f'{site}/site-packages/tox.py'!r}, 'w').write({_stub()!r})"
    if not succeeds:
        install = "print('ERROR: no such release'); print('a closing remark'); raise SystemExit(1)"
    return FAKE_PIP.format(breaks_ensurepip=breaks_ensurepip, install=install)


def _stub() -> str:
    return f"import sys\nif sys.argv[1:] == ['--version']: sys.exit(0)\n{STUB_TOX}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["all"], []),
        (["all", "--discover", "/a", "/b"], ["--discover", "/a", "/b"]),
        (["conformance"], ["-e", "conformance"]),
        (["lint,types"], ["-e", "lint,types"]),
        (["py311", "--", "-k", "x"], ["-e", "py311", "--", "-k", "x"]),
    ],
)
def test_arguments_reach_tox_and_its_exit_code_comes_back(
    clone: Path, arguments: list[str], expected: list[str]
) -> None:
    done = bootstrap(clone, *arguments, python_code=fake_install(clone))
    assert done.returncode == 7, done.stderr
    tox_arguments = json.loads(done.stdout)
    assert tox_arguments == ["run", "--result-json", ".tox/result.json", *expected]


def test_a_tox_that_a_signal_ended_is_told_as_a_shell_does(clone: Path) -> None:
    code = fake_install(clone).replace("sys.exit(7)", "import os; os.kill(os.getpid(), 15)")
    assert bootstrap(clone, "all", python_code=code).returncode == 143


def test_second_run_installs_nothing(clone: Path) -> None:
    bootstrap(clone, "all", python_code=fake_install(clone))
    done = bootstrap(clone, "all", python_code=fake_install(clone, succeeds=False))
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""


def test_interrupted_set_up_starts_over(clone: Path) -> None:
    bootstrap(clone, "all", python_code=fake_install(clone))
    (clone / ".tox" / ".bootstrap" / "installed").unlink()
    done = bootstrap(clone, "all", python_code=fake_install(clone))
    assert done.returncode == 7
    assert "installing tox" in done.stderr


def test_works_without_ensurepip_where_pip_is_there(clone: Path) -> None:
    code = fake_install(clone, breaks_ensurepip=True)
    done = bootstrap(clone, "all", python_code=code)
    assert done.returncode == 7, done.stderr


def test_failed_install_is_one_line_with_the_reason(clone: Path) -> None:
    done = bootstrap(clone, "all", python_code=fake_install(clone, succeeds=False))
    assert done.returncode == 3
    assert done.stderr.splitlines()[1:] == [
        "bootstrap: pip could not install tox>=4.26,<5: ERROR: no such release"
    ]


def test_no_way_to_make_an_environment_is_one_line(clone: Path) -> None:
    code = "import subprocess\nreal = subprocess.run\n"
    code += "subprocess.run = lambda command, **o: real([command[0], '-c', '1/0'], **o)"
    done = bootstrap(clone, "all", python_code=code)
    assert done.returncode == 3
    assert "apt install python3-venv" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_old_python_is_one_line(clone: Path) -> None:
    code = "import sys\nsys.version_info = (3, 10, 13)\nsys.version = '3.10.13 (main)'"
    done = bootstrap(clone, "all", python_code=code)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "Python 3.11 or newer is needed, and this is 3.10.13" in line


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["-x"], 2), (["--help"], 0)])
def test_usage(clone: Path, arguments: list[str], code: int) -> None:
    done = bootstrap(clone, *arguments)
    assert done.returncode == code
    assert "python3 bootstrap.py conformance" in done.stdout
