"""Asks a module of `autosched.tvm` something in a process of its own, which prints one JSON object.

TVM may crash, hang or be missing: here that is an error message, never the end of the asking process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from autosched.errors import AutoschedError, RequestError, from_wire

TAIL_CHARS = 1_500
INSTALL = "TVM is not installed here. Install it with:  pip install 'autosched[tvm]'"


async def ask(module: str, words: Sequence[str], *, timeout_s: float) -> dict[str, Any]:
    """Run ``python -m module words...``; returns what it printed.

    Raises the error that it reports, or RequestError that says how it died. The whole process group is killed when the
    deadline passes or the caller is cancelled.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        raise RequestError(f"{module} did not end within {timeout_s:g} s and was killed") from None
    finally:
        _kill_group(process)
        await process.wait()
    return _answer(module, process.returncode or 0, out, err.decode(errors="replace"))


def _kill_group(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _answer(module: str, code: int, out: bytes, err: str) -> dict[str, Any]:
    lines = out.decode(errors="replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        answer = None
    if isinstance(answer, dict):
        if answer.get("ok", True) or "error" not in answer:
            return answer
        raise from_wire(str(answer.get("code", "request")), str(answer["error"]))
    raise died(module, code, err)


def died(module: str, code: int, err: str) -> AutoschedError:
    """Why a process that printed no answer ended."""
    if "ModuleNotFoundError" in err and any(f"No module named '{name}" in err for name in ("tvm", "onnx", "numpy")):
        return RequestError(INSTALL)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return RequestError(
        f"{module} {how} and said nothing of use. See what is wrong with:  autosched doctor\n"
        + err[-TAIL_CHARS:].strip()
    )
