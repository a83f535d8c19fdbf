"""Some 200 cases of ONNX's backend suite and of old opsets: none is worse than in the committed results.
`make onnx-suite` runs all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deadlines import DEADLINE_S

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
TESTS = Path(__file__).parents[1]
LIMIT_S = 8 * DEADLINE_S


def test_no_case_is_worse() -> None:
    words = [sys.executable, "-m", "onnx_suite", "--every", "15"]
    there = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(words, env=there, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert "deployed" in done.stdout
