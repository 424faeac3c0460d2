"""The two scripts whose verdict decides a CI run: coverage gates and the closing line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("lint", "types", "imports", "py311", "py312", "py313", "conformance", "packaging", "bench")


def environment(name: str, *, success: bool = True, skipped: bool = False) -> dict[str, Any]:
    """One entry of a tox result file."""
    result = {"success": success, "exit_code": int(not success), "skipped": skipped}
    if skipped:
        return {"result": result}
    version = f"3.{name[3:]}.4 (main)" if name.startswith("py3") else "3.11.4 (main)"
    return {"result": result, "python": {"version": version}}


def verdict(
    tmp_path: Path, testenvs: dict[str, Any], exit_code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"testenvs": testenvs}))
    return ci_verdict(str(path), str(exit_code), **variables)


def ci_verdict(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UTTERWIRE")}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "ci_verdict.py"), *arguments],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_well(tmp_path: Path) -> None:
    done = verdict(tmp_path, {name: environment(name) for name in NAMES})
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "ci: tests passed on Python: 3.11.4, 3.12.4, 3.13.4",
        "ci: passed: all 9 environments that ran",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_is_named(tmp_path: Path, name: str) -> None:
    entries = {each: environment(each, success=each != name) for each in NAMES}
    done = verdict(tmp_path, entries, exit_code=1)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"ci: FAILED: {name} failed"


@pytest.mark.parametrize("gone", [{}, environment("py312", skipped=True), None])
@pytest.mark.parametrize("permit", ["", "1"])
def test_missing_312_fails_unless_permitted(
    tmp_path: Path, gone: dict[str, Any] | None, permit: str
) -> None:
    entries = {name: environment(name) for name in NAMES}
    if gone is None:
        del entries["py312"]
    else:
        entries["py312"] = gone
    done = verdict(tmp_path, entries, UTTERWIRE_CI_ALLOW_MISSING_312=permit)
    assert done.returncode == (0 if permit else 1)
    expected = "Python 3.12 is missing here" if permit else "FAILED: py312 did not run"
    assert expected in done.stdout


def test_permission_does_not_excuse_a_failing_312(tmp_path: Path) -> None:
    entries = {name: environment(name, success=name != "py312") for name in NAMES}
    done = verdict(tmp_path, entries, 1, UTTERWIRE_CI_ALLOW_MISSING_312="1")
    assert done.returncode == 1


@pytest.mark.parametrize("name", [each for each in NAMES if each not in ("py312", "py313")])
def test_what_every_run_has_may_not_be_skipped(tmp_path: Path, name: str) -> None:
    entries = {each: environment(each, skipped=each == name) for each in NAMES}
    done = verdict(tmp_path, entries)
    assert done.returncode == 1
    assert f"{name} did not run" in done.stdout


def test_missing_313_is_no_failure_and_is_not_listed(tmp_path: Path) -> None:
    entries = {name: environment(name, skipped=name == "py313") for name in NAMES}
    done = verdict(tmp_path, entries)
    assert done.returncode == 0
    assert "3.13" not in done.stdout


def test_exit_code_of_tox_counts_by_itself(tmp_path: Path) -> None:
    done = verdict(tmp_path, {name: environment(name) for name in NAMES}, exit_code=3)
    assert done.returncode == 1
    assert "tox exited with 3" in done.stdout


def test_no_result_file_is_a_failure_in_one_line(tmp_path: Path) -> None:
    done = ci_verdict(str(tmp_path / "none.json"), "143")
    assert done.returncode == 1
    assert "tox exited with 143" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_every_environment_of_tox_is_judged() -> None:
    """`NAMES` here, `env_list` there, and what the script requires can't drift apart."""
    text = (ROOT / "tox.ini").read_text()
    (line,) = [each for each in text.splitlines() if each.startswith("env_list")]
    assert [name.strip() for name in line.split("=")[1].split(",")] == list(NAMES)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with the gated folders, each with a module of two branches."""
    for folder, package in [
        ("schemas", "utterwire_schemas"),
        ("protocol", "utterwire_protocol"),
        ("reference_server", "utterwire_server"),
        ("reference_client", "utterwire_client"),
        ("reference_client", "utterwire_player"),
        ("conformance", "utterwire_conformance"),
    ]:
        (tmp_path / folder / package).mkdir(parents=True)
        (tmp_path / folder / package / "__init__.py").write_text(
            "def sign(value):\n    if value < 0:\n        return -1\n    return 1\n"
        )
    (tmp_path / ".coveragerc").write_text("[run]\nbranch = true\nparallel = true\nsource = .\n")
    return tmp_path


def cover(project: Path, *, only_positive_in: str = "", leave_out: str = "") -> None:
    lines = ["import sys"]
    for package in (
        (ROOT / "pyproject.toml").read_text().split("source_pkgs = [")[1].split("]")[0].split(",")
    ):
        name = package.strip().strip('"')
        if not name or name == leave_out:
            continue
        (folder,) = project.glob(f"*/{name}")
        lines += [
            f"sys.path.insert(0, {str(folder.parent)!r})",
            f"import {name}",
            f"{name}.sign(1)",
        ]
        if name != only_positive_in:
            lines.append(f"{name}.sign(-1)")
    (project / "drive.py").write_text("\n".join(lines))
    subprocess.run([sys.executable, "-m", "coverage", "run", "drive.py"], cwd=project, check=True)


def gates(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "coverage_gates.py"), *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )


def test_full_coverage_passes_every_gate(project: Path) -> None:
    cover(project)
    done = gates(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == 6


def test_one_missing_branch_fails_that_package_alone(project: Path) -> None:
    cover(project, only_positive_in="utterwire_protocol")
    done = gates(project)
    assert done.returncode == 1
    low = [line for line in done.stdout.splitlines() if line.endswith("LOW")]
    assert [line.split(":")[1].strip() for line in low] == ["protocol/utterwire_protocol"]


def test_a_package_that_no_test_imports_fails(project: Path) -> None:
    shutil.rmtree(project / "schemas")
    cover(project, leave_out="utterwire_schemas")
    done = gates(project)
    assert done.returncode == 1
    assert done.stdout.count("NOT MEASURED") == 1


def test_part_of_the_tests_is_not_held_to_the_gates(project: Path) -> None:
    cover(project, only_positive_in="utterwire_protocol")
    assert gates(project, "-k", "some").returncode == 0
