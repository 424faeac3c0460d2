"""`scripts/soak.py`, in short: nothing is left behind, and what is left behind is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).parents[2] / "scripts" / "soak.py"
LEAKY = '''
import tempfile

from utterwire_server.engines import ToneEngine


class Leaky(ToneEngine):
    """Keeps a file open for each utterance."""

    kept = []

    async def synthesize(self, request):
        self.kept.append(tempfile.TemporaryFile())
        async for block in super().synthesize(request):
            yield block
'''


def soak(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(SOAK), "--out", "-", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if "UTTERWIRE" not in name},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_mixed_load_leaves_nothing_behind(tmp_path: Path) -> None:
    status, result = soak(tmp_path, "--minutes", "0.6", "--seed", "3", "--", "--rtf", "0.02")
    assert result["complete"]
    assert result["faults"] == []
    assert result["left_behind"] == []
    # Every accepted utterance ended once: some in each way.
    assert result["after"]["accepted"] == result["after"]["utterances"] > 20
    assert result["done"]["ws synthesis_complete"] > 0
    assert result["done"]["ws cancelled"] > 0
    assert status == 0


@pytest.mark.slow
def test_a_leak_is_seen(tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY, encoding="utf-8")
    status, result = soak(tmp_path, "--minutes", "0.1", "--engine", "leaky:Leaky")
    assert status == 1
    (left,) = result["left_behind"]
    assert left.startswith("files: ")
    assert result["faults"] == []
