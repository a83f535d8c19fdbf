"""Agents as jobs of Slurm: submits missing ones, and cancels surplus ones."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from autosched.errors import RequestError

COMMAND_S = 60.0
"""Maximum seconds of a command of Slurm."""
ENDED = ("COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")
"""States of jobs without a running agent."""


class SlurmJob(Struct, frozen=True):
    """A job of Slurm that runs an agent, or will."""

    number: str
    name: str
    """Name of the agent."""
    state: str
    node: str = ""


class Change(Struct, frozen=True):
    """Jobs to submit and to cancel, for the wanted number of agents."""

    submitted: tuple[str, ...]
    """Names of agents."""
    cancelled: tuple[SlurmJob, ...]


def agents(listed: str, prefix: str) -> list[SlurmJob]:
    """The jobs of agents in the output of squeue, by their number."""
    found = []
    for line in listed.splitlines():
        number, name, state, node = line.split("|")
        if name.removeprefix(f"{prefix}-").isdecimal() and name.startswith(prefix) and state not in ENDED:
            found.append(SlurmJob(number, name, state, node))
    return sorted(found, key=lambda job: int(job.name.rpartition("-")[2]))


def change(there: Sequence[SlurmJob], wanted: int, prefix: str) -> Change:
    """Compute the change from the present jobs to the wanted agents, called PREFIX-0, PREFIX-1 and so on.

    Two jobs of one name cannot both lend a host: the later one is cancelled.
    """
    names, kept, extra = [f"{prefix}-{number}" for number in range(wanted)], set[str](), []
    for job in there:
        if job.name in names and job.name not in kept:
            kept.add(job.name)
        else:
            extra.append(job)
    return Change(tuple(name for name in names if name not in kept), tuple(extra))


def scale(file: Path, wanted: int, prefix: str, environment: Mapping[str, str]) -> tuple[Change, list[SlurmJob]]:
    """Submit or cancel jobs; returns the change, and the jobs after it. Raises RequestError."""
    if not file.is_file():
        raise RequestError(f"there is no file {file}: copy etc/slurm/agent.sbatch, and add what your cluster needs")
    done = change(_listed(prefix), wanted, prefix)
    for name in done.submitted:
        _run(["sbatch", "--parsable", f"--job-name={name}", "--export=ALL", str(file)], environment)
    for job in done.cancelled:
        _run(["scancel", job.number])
    return done, _listed(prefix)


def _listed(prefix: str) -> list[SlurmJob]:
    return agents(_run(["squeue", "--me", "--noheader", "--format=%i|%j|%T|%N"]), prefix)


def _run(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    try:
        ended = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_S, env={**os.environ, **(environment or {})}
        )
    except FileNotFoundError:
        raise RequestError(f"there is no {words[0]} here: run this where jobs of Slurm are submitted") from None
    except subprocess.TimeoutExpired:
        raise RequestError(f"{words[0]} did not answer within {COMMAND_S:g} s: try again when Slurm does") from None
    if ended.returncode:
        raise RequestError(f"{' '.join(words)} failed: {ended.stderr.strip() or ended.returncode}")
    return ended.stdout
