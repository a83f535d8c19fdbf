"""Runs a Python module as a process that prints JSON objects, one per line; the last one is the answer.

A crash, a hang or a missing package becomes an error message, and never ends the calling process.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.errors import AutoschedError, RequestError, from_wire
from autosched.process import isolated_python, program_runner
from autosched.process.program_runner import Ended

TAIL_CHARS = 1_500


async def run(
    module: str, words: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Ended:  # fmt: skip
    """Run ``python -m module words...`` to its end. Raises RequestError if the deadline passes first.

    `environment`: variables beside those that every program gets. `on_line`: called with each line of its output.

    Files that libraries write for themselves (ONNX Runtime counts its uses) go to a temporary folder, not to the user's
    HOME.
    """
    with tempfile.TemporaryDirectory(prefix="autosched-child-", ignore_cleanup_errors=True) as folder:
        variables = isolated_python.environment({"XDG_CACHE_HOME": folder, **(environment or {})})
        try:
            command = isolated_python.command(module, *words)
            return await program_runner.run(command, timeout_s=timeout_s, environment=variables, on_line=on_line)
        except TimeoutError:
            raise RequestError(f"{module} did not end within {timeout_s:g} s and was killed") from None


async def ask(
    module: str,
    words: Sequence[str],
    *,
    timeout_s: float,
    missing: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    on_object: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Run it; returns the last JSON object that it printed. Raises the error that it reports, or how it died.

    `missing`: package that may be missing -> the text of the error then. `environment` as in `run`.
    `on_object`: called with each JSON object as it is printed, the last one included.
    """

    def pass_on(line: str) -> None:
        for one in objects(line):
            if on_object is not None:
                on_object(one)

    ended = await run(
        module, words, timeout_s=timeout_s, environment=environment, on_line=pass_on if on_object else None
    )
    answers = objects(ended.out)
    if not answers:
        raise died(module, ended, missing or {})
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


def died(module: str, ended: Ended, missing: Mapping[str, str]) -> AutoschedError:
    """Why a process without an answer ended. `missing` as in `ask`."""
    if "ModuleNotFoundError" in ended.err:
        for package, advice in missing.items():
            if f"No module named '{package}" in ended.err:
                return RequestError(advice)
    return RequestError(
        f"{module} {ended.how} and said nothing of use. See what is wrong with:  autosched doctor\n"
        + ended.err[-TAIL_CHARS:].strip()
    )
