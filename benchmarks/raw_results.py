"""Origin of raw results: machine, commit and date, which each file of benchmarks/results/ names."""

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "results"


class Stamp(NamedTuple):
    """When, and at which commit, a measurement was made. Dates are YYYY-MM-DD, so that they sort."""

    date: str
    commit: str


def origin() -> dict[str, str]:
    """Returns what a measurement that is made now records beside its figures."""
    return {
        "machine": machine(),
        "commit": git("rev-parse", "HEAD").strip()[:10],
        "date": datetime.now(UTC).date().isoformat(),
    }


def stamps(told: object) -> list[Stamp]:
    """Returns the distinct origins that raw results name, oldest first; parts may have been measured at other times."""
    return sorted(set(_stamps(told)))


def _stamps(told: object) -> Iterator[Stamp]:
    if isinstance(told, Mapping):
        if isinstance(told.get("commit"), str) and isinstance(told.get("date"), str):
            yield Stamp(told["date"], told["commit"])
        for value in told.values():
            yield from _stamps(value)
    elif isinstance(told, Sequence) and not isinstance(told, str):
        for value in told:
            yield from _stamps(value)


def git(*words: str) -> str:
    """Returns the output of a git command in this project. Raises CalledProcessError."""
    return subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, text=True, check=True).stdout


def machine() -> str:
    """Describes the machine and its packages."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    packages = ", ".join(f"{name} {version(name)}" for name in ("apache-tvm", "apache-tvm-ffi", "onnxruntime"))
    return f"{len(os.sched_getaffinity(0))} cores, {model}; Python {platform.python_version()}, {packages}"


def with_origin(told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row or a file of raw results with its origin first."""
    return {**origin(), **told}
