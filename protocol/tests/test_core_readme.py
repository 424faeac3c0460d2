"""The programs of ``protocol/README.md`` run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"README.md, program {number}", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "0.2 s, 9600 bytes",
        "['Cancelled', 'CancelDone']",
        "client_close 4",
    ]


def test_the_readme_names_nothing_that_is_not_there() -> None:
    import utterwire_protocol

    text = README.read_text(encoding="utf-8")
    for name in re.findall(r"^\| `(\w+)", text, flags=re.MULTILINE):
        assert hasattr(utterwire_protocol, name), name
