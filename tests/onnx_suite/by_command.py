"""Runs cases as users do: `autosched model check`, and `autosched tune --zero-shot`. What the first accepts, the second
must deliver."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx

from onnx_suite.case_run import AS_IT_IS, CONSTANT, in_form, open_shapes
from onnx_suite.cases import Case

LIMIT_S = 120.0
"""Maximum seconds of one command."""
SAID_MAX = 1_000
"""Maximum characters of a message that is kept: its end."""
AGREED = ("delivered", "refused by both")
CRASH = "Traceback (most recent call last)"


def compare(cases: Iterable[Case]) -> Counter[str]:
    """Counts how both commands ended, and prints each case where they disagree or one crashed."""
    count: Counter[str] = Counter()
    forms = [(case, form, in_form(case, form)) for case in cases for form in (AS_IT_IS, CONSTANT)]
    with tempfile.TemporaryDirectory(prefix="autosched-suite-") as folder:
        variables = os.environ | {"XDG_STATE_HOME": folder, "NO_COLOR": "1"}
        try:
            for case, form, made in forms:
                if made is not None:
                    found, said = _both(*made, Path(folder), variables)
                    count[found] += 1
                    if found not in AGREED:
                        print(f"{case.name} ({form}): {found}: {said}", flush=True)
        finally:
            _run(["stop"], variables)
    return count


def _both(model: Any, samples: list[dict[str, Any]], folder: Path, variables: dict[str, str]) -> tuple[str, str]:
    path = folder / "model.onnx"
    onnx.save(model, path)
    shapes = [f"{name}={','.join(map(str, shape))}" for name, shape in open_shapes(model, samples[0]).items()]
    options = [str(path), *(word for shape in shapes for word in ("--shape", shape))]
    checked, check_said = _run(["model", "check", *options], variables)
    tuned, tune_said = _run(["tune", *options, "--zero-shot", "-o", str(folder / "out")], variables)
    if CRASH in check_said + tune_said:
        return "traceback", (check_said + tune_said)[-SAID_MAX:]
    if checked == 0:
        return ("delivered", "") if tuned == 0 else ("accepted by check, refused by tune", tune_said[-SAID_MAX:])
    return ("refused by both", "") if tuned != 0 else ("refused by check, delivered by tune", check_said[-SAID_MAX:])


def _run(arguments: list[str], variables: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "autosched", *arguments]
    try:
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return 124, f"not ended within {LIMIT_S:g} s"
    return ended.returncode, ended.stdout + ended.stderr
