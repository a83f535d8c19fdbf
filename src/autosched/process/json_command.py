"""Asks a module of `autosched_tvm` something in a process of its own, which prints JSON objects, one a line.

TVM may crash, hang or be missing: here that is an error message, never the end of the asking process.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from autosched.errors import AutoschedError, RequestError, from_wire
from autosched.process import program_runner
from autosched.process.program_runner import Ended

TAIL_CHARS = 1_500
INSTALL = "TVM is not installed here. Install it with:  pip install 'autosched[tvm]'"


async def run(module: str, words: Sequence[str], *, timeout_s: float) -> Ended:
    """Run ``python -m module words...`` to its end. Raises RequestError when the deadline passes first.

    What libraries keep for themselves (ONNX Runtime counts its uses) goes into a folder that is gone afterwards, not
    into the user's HOME.
    """
    with tempfile.TemporaryDirectory(prefix="autosched-child-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        try:
            command = [sys.executable, "-m", module, *words]
            return await program_runner.run(command, timeout_s=timeout_s, environment=environment)
        except TimeoutError:
            raise RequestError(f"{module} did not end within {timeout_s:g} s and was killed") from None


async def ask(module: str, words: Sequence[str], *, timeout_s: float) -> dict[str, Any]:
    """Run it; returns the JSON object that it printed last. Raises the error that it reports, or how it died."""
    ended = await run(module, words, timeout_s=timeout_s)
    answers = objects(ended.out)
    if not answers:
        raise died(module, ended)
    if not answers[-1].get("ok", True) and "error" in answers[-1]:
        raise from_wire(str(answers[-1].get("code", "request")), str(answers[-1]["error"]))
    return answers[-1]


def objects(out: str) -> list[dict[str, Any]]:
    """The lines that are JSON objects."""
    found = []
    for line in out.splitlines():
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            continue
        found += [value] if isinstance(value, dict) else []
    return found


def died(module: str, ended: Ended) -> AutoschedError:
    """Why a process that printed no answer ended."""
    missing = "ModuleNotFoundError" in ended.err
    if missing and any(f"No module named '{name}" in ended.err for name in ("tvm", "onnx", "numpy")):
        return RequestError(INSTALL)
    return RequestError(
        f"{module} {ended.how} and said nothing of use. See what is wrong with:  autosched doctor\n"
        + ended.err[-TAIL_CHARS:].strip()
    )
