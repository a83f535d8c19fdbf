"""`autosched sim`: runs the daemon's scheduler in virtual time, on instances whose best schedule is known or
bounded."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from autosched import formatting
from autosched.cli.output import data, document_option, say, table
from autosched.errors import RequestError
from autosched.model import Goal

if TYPE_CHECKING:
    from autosched.sim.policy_benchmark import Row, SimulationRun

T = TypeVar("T")

ALL = "all"
STEPS_PER_PROCESS = 4_000
"""Number of simulated steps that take as long as starting a process."""


@click.command()
@click.option(
    "--instances",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Instances to simulate. [default: the 26 that come with autosched]",
)
@click.option(
    "--generate",
    "shapes",
    multiple=True,
    metavar="KIND:N-C-M[:SEED]",
    help="Random load: N jobs, C hosts, M devices. Kinds, from uniform to heavy-tailed: hom, noisy, het, heavy.",
)
@click.option("--longer", type=click.IntRange(1, 1_000), default=1, help="Generated jobs: factor of the rounds.")
@click.option(
    "--load",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Generated jobs arrive one by one, and keep the busiest resource busy for this share of the time.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 100_000), help="Number of generated jobs instead of N. [400 with --load]"
)
@click.option("--policy", metavar="NAME", help="A policy, or `all` to compare them. [default: the daemon's default]")
@click.option(
    "--goal",
    type=click.Choice([goal.value for goal in Goal]),
    default=Goal.BALANCED.value,
    show_default=True,
    help="Goal of `predictive`.",
)
@click.option(
    "--estimates",
    default="learned",
    show_default=True,
    metavar="KIND",
    help="Estimates of the policy for a step's time: `perfect` the truth, `learned` nothing, `wrong:S` each job's mean"
    " per stage times exp(N(0, S)).",
)
@click.option(
    "--processes", type=click.IntRange(1, 1_000), help="Number of parallel processes. [default: one per core]"
)
@document_option
def sim(
    files: tuple[Path, ...],
    shapes: tuple[str, ...],
    longer: int,
    load: float | None,
    jobs: int | None,
    policy: str | None,
    goal: str,
    estimates: str,
    processes: int | None,
    style: str,
) -> None:
    """Simulate the scheduler on known loads.

    RATIO is the makespan divided by the best known one, or by the lower bound if none is known. MEAN is the mean time
    from a job's arrival to its end; SLOW is the largest ratio of a job's time to the time that it would take alone.
    """
    from autosched import policy_registry
    from autosched.sim import estimate_quality as kinds
    from autosched.sim import parallel, policy_benchmark
    from autosched.workloads import generator, instances

    if (longer != 1 or load is not None or jobs is not None) and not shapes:
        raise click.UsageError("--longer, --load and --jobs shape what --generate KIND:N-C-M makes; give that too")
    count = 400 if jobs is None and load is not None else jobs
    loads = [one for file in files for one in instances.read(file)]
    loads += [generator.generate(generator.parse(text, jobs=count, longer=longer, load=load)) for text in shapes]
    names = policy_registry.installed() if policy == ALL else (policy or policy_benchmark.DEFAULT,)
    for name in names:
        policy_registry.check_name(name)
    trials = [
        policy_benchmark.SimulationRun(instance=one, policy=name, goal=Goal(goal), estimates=kinds.parse(estimates))
        for one in loads or instances.standard()
        for name in names
    ]
    processes = processes or min(parallel.cores(), len(trials), 1 + _steps(trials) // STEPS_PER_PROCESS)
    outcomes = _counted(parallel.each(policy_benchmark.attempt, trials, processes), len(trials))
    rows = _rows(outcomes, several=len(names) > 1)
    if style == "json":
        return data(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    data(_table(rows, names))


def _steps(trials: Sequence["SimulationRun"]) -> int:
    return sum(3 * len(job.iterations) for trial in trials for job in trial.instance.jobs)


def _counted(outcomes: Iterator[T], count: int) -> Iterator[T]:
    """Pass outcomes on, with progress at a terminal."""
    watched = count > 1 and sys.stderr.isatty()
    for number, outcome in enumerate(outcomes, 1):
        if watched:
            sys.stderr.write(f"\r{number} of {count} simulations" if number < count else "\r\x1b[K")
            sys.stderr.flush()
        yield outcome


def _rows(outcomes: Iterator["Row | RequestError"], *, several: bool) -> list["Row"]:
    """The rows; if policies are compared, one that does not finish is named and left out."""
    rows = list["Row"]()
    failed = list[RequestError]()
    for outcome in outcomes:
        if not isinstance(outcome, RequestError):
            rows.append(outcome)
        elif several:
            failed.append(outcome)
        else:
            raise outcome
    if failed:
        say(f"left out: {len(failed)} of {len(failed) + len(rows)} simulations, the first since {failed[0]}")
    return rows


def _table(rows: Sequence["Row"], policies: Sequence[str]) -> str:
    cells: list[Sequence[str]] = [
        (
            row.name,
            row.policy,
            formatting.duration(row.makespan_s),
            f"{row.ratio:.3f}",
            formatting.duration(row.mean_completion_s),
            f"{row.max_slowdown:.1f}",
            formatting.share(row.hosts_busy, 1),
            formatting.share(row.devices_busy, 1),
        )
        for row in rows
    ]
    for policy in policies:
        if len(mine := [row for row in rows if row.policy == policy]) > 1:
            cells += [_summary("mean", mine, fmean), _summary("worst", mine, max)]
    headers = ("INSTANCE", "POLICY", "MAKESPAN", "RATIO", "MEAN", "SLOW", "HOSTS", "DEV")
    return table(headers, cells, right=range(2, 8), give=0)


def _summary(word: str, rows: Sequence["Row"], of: Callable[[Sequence[float]], float]) -> Sequence[str]:
    ratio, completion_s = of([row.ratio for row in rows]), of([row.mean_completion_s for row in rows])
    slowest = of([row.max_slowdown for row in rows])
    title = f"{word} of {len(rows)}"
    return (title, rows[0].policy, "", f"{ratio:.3f}", formatting.duration(completion_s), f"{slowest:.1f}", "", "")
