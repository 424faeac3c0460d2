"""Benchmarks are no package; tests of them import them by name, as they do each other."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

sys.path += [str(ROOT / "benchmarks"), str(ROOT / "scripts")]
