"""Asks a module of `autosched.tvm` something in a process of its own, which prints JSON objects, one a line.

TVM may crash, hang or be missing: here that is an error message, never the end of the asking process.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from autosched.errors import AutoschedError, RequestError, from_wire

TAIL_CHARS = 1_500
INSTALL = "TVM is not installed here. Install it with:  pip install 'autosched[tvm]'"


class Ended(Struct, frozen=True):
    """What a process left behind."""

    module: str
    code: int
    out: str
    err: str


async def run(module: str, words: Sequence[str], *, timeout_s: float) -> Ended:
    """Run ``python -m module words...`` to its end. Raises RequestError when the deadline passes first.

    The whole process group is killed then, and when the caller is cancelled. What libraries keep for themselves (ONNX
    Runtime counts its uses) goes into a folder that is gone afterwards, not into the user's HOME.
    """
    with tempfile.TemporaryDirectory(prefix="autosched-child-", ignore_cleanup_errors=True) as folder:
        return await _run(module, words, {**os.environ, "XDG_CACHE_HOME": folder}, timeout_s)


async def _run(module: str, words: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Ended:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True, env=environment,
    )  # fmt: skip
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        raise RequestError(f"{module} did not end within {timeout_s:g} s and was killed") from None
    finally:
        _kill_group(process)
        await process.wait()
    return Ended(module, process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def ask(module: str, words: Sequence[str], *, timeout_s: float) -> dict[str, Any]:
    """Run it; returns the JSON object that it printed last. Raises the error that it reports, or how it died."""
    ended = await run(module, words, timeout_s=timeout_s)
    answers = objects(ended.out)
    if not answers:
        raise died(ended)
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


def _kill_group(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def died(ended: Ended) -> AutoschedError:
    """Why a process that printed no answer ended."""
    missing = "ModuleNotFoundError" in ended.err
    if missing and any(f"No module named '{name}" in ended.err for name in ("tvm", "onnx", "numpy")):
        return RequestError(INSTALL)
    return RequestError(
        f"{ended.module} {how(ended)} and said nothing of use. See what is wrong with:  autosched doctor\n"
        + ended.err[-TAIL_CHARS:].strip()
    )


def how(ended: Ended) -> str:
    """Exit code or signal, in words."""
    code = ended.code
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
