"""`autosched plan`: predicts recorded jobs with another device, another host, or another job."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched import formatting
from autosched.cli.output import data, document, document_option, say, table
from autosched.errors import RequestError
from autosched.model import DEVICE_POOL, Goal, JobId, PoolName
from autosched.protocol import ListJobs
from autosched.protocol.pagination import answered
from autosched.text.job_selectors import select

if TYPE_CHECKING:
    from autosched.sim.what_if import Outlook, Plan, PlannedJob

COUNT_MAX = 1_000
JOBS_SHOWN = 40
ALL = "all"


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="JOURNAL",
    help="A daemon's state folder, or its autosched.db; only read. [default: this user's own daemon]",
)
@click.option("--jobs", "which", metavar="JOB...", default="all", help="Only these jobs: 12-15, 12,14, last.")
@click.option("--hosts", type=click.IntRange(1, COUNT_MAX), help="Number of hosts, each with the same lanes.")
@click.option("--lanes", type=click.IntRange(1, COUNT_MAX), help="Number of lanes per host.")
@click.option(
    "--devices", multiple=True, metavar="[KIND=]N", help="Number of devices; of that kind, if there are several kinds."
)
@click.option(
    "--add-job",
    "added",
    multiple=True,
    metavar="JOB[:COPIES]",
    help="Number of copies of a job, submitted when it was.",
)
@click.option("--policy", metavar="NAME", help="Policy, or `all` to compare them. [default: the recorded one]")
@click.option("--goal", type=click.Choice([goal.value for goal in Goal]), help="Another goal of `predictive`.")
@document_option
def plan(
    source: Path | None,
    which: str,
    hosts: int | None,
    lanes: int | None,
    devices: tuple[str, ...],
    added: tuple[str, ...],
    policy: str | None,
    goal: str | None,
    style: str,
) -> None:
    """Print the time that recorded jobs would have taken with more devices, hosts, lanes or jobs, or under another
    policy.

    The scheduler itself runs them again in virtual time, as they were (SIMULATED) and with the change (PLANNED). The
    prediction assumes that a step takes its recorded time on any unit, that a job stays on one host, the one with the
    least work at its arrival, and that it makes its recorded rounds. Other jobs of that time are left out.
    """
    from autosched import policy_registry
    from autosched.config import load
    from autosched.sim import what_if as planning
    from autosched.sim.workload_scenarios import Change
    from autosched.workloads import recordings

    if policy not in (None, ALL):
        policy_registry.check_name(policy)
    recording = recordings.read(load(None).state_dir if source is None else source)
    kinds = [pool.name for pool in recording.pools if pool.name.startswith(DEVICE_POOL)]

    def recorded_jobs(asked: ListJobs) -> Sequence[JobId]:
        """All ended jobs, as far as recorded."""
        return [
            job.job
            for job in recording.jobs
            if asked.name in ("", job.spec.name)
            and asked.labels.items() <= job.spec.labels.items()
            and (asked.before is None or job.job < asked.before)
        ][-asked.limit :]

    change = Change(
        hosts=hosts or 1, lanes=lanes, devices=_devices(devices, kinds), added=tuple(_copies(text) for text in added)
    )
    jobs, aim = answered(select([which]), recorded_jobs), Goal(goal) if goal is not None else None
    if policy == ALL:
        answers = planning.compare(recording, jobs, change, policy_registry.installed(), aim)
        if style == "json":
            return document("plans", answers)
        data(_of_policies(answers))
    else:
        answers = [planning.plan(recording, jobs, change, policy, aim)]
        if style == "json":
            return document("plan", answers[0])
        data(_comparison(answers[0]))
        data("")
        data(_jobs(answers[0].jobs))
    for note in answers[0].notes:
        say(f"note: {note}")


def _devices(words: Sequence[str], kinds: Sequence[PoolName]) -> Mapping[PoolName, int]:
    counts: dict[PoolName, int] = {}
    for word in words:
        kind, _, number = word.rpartition("=")
        if not re.fullmatch(r"[1-9]\d{0,3}", number) or int(number) > COUNT_MAX:
            raise RequestError(f"--devices {word!r}: write a number from 1 to {COUNT_MAX}, or KIND=NUMBER")
        if not kind and len(kinds) != 1:
            raise RequestError(f"--devices {word!r}: of which kind? Write for example {_kind(kinds)}={number}")
        counts[f"{DEVICE_POOL}{kind}" if kind else kinds[0]] = int(number)
    return counts


def _kind(kinds: Sequence[PoolName]) -> str:
    return kinds[0].removeprefix(DEVICE_POOL) if kinds else "cpu"


def _copies(text: str) -> tuple[JobId, int]:
    match = re.fullmatch(r"(\d{1,15})(?::([1-9]\d{0,3}))?", text)
    if match is None or int(match[2] or 1) > COUNT_MAX:
        raise RequestError(f"--add-job {text!r}: write a job's number, or JOB:COPIES with up to {COUNT_MAX} copies")
    return int(match[1]), int(match[2] or 1)


def _comparison(answer: "Plan") -> str:
    ways = (answer.recorded, answer.simulated, answer.planned)
    pools = dict.fromkeys(pool for way in ways for pool in way.units)
    rows = [
        ("policy", *(way.policy for way in ways)),
        *((f"units of {pool}", *(str(way.units.get(pool, "-")) for way in ways)) for pool in pools),
        ("makespan", *(_seconds(way.makespan_s) for way in ways)),
        ("mean completion", *(_seconds(way.mean_completion_s) for way in ways)),
        *((f"busy {pool}", *(_busy(way, pool) for way in ways)) for pool in pools),
    ]
    return table(("", "RECORDED", "SIMULATED", "PLANNED"), rows, right=(1, 2, 3), give=0)


def _of_policies(answers: Sequence["Plan"]) -> str:
    ways = [("recorded", answers[0].recorded), ("simulated", answers[0].simulated)]
    ways += [("planned", answer.planned) for answer in answers]
    pools = dict.fromkeys(pool for _, way in ways for pool in way.units)
    rows = [
        (
            name,
            way.policy,
            _seconds(way.makespan_s),
            _seconds(way.mean_completion_s),
            *(_busy(way, pool) for pool in pools),
        )
        for name, way in ways
    ]
    headers = ("", "POLICY", "MAKESPAN", "MEAN COMPLETION", *(f"BUSY {pool.upper()}" for pool in pools))
    return table(headers, rows, right=range(2, len(headers)), give=1)


def _busy(way: "Outlook", pool: PoolName) -> str:
    return formatting.share(way.busy[pool], 1) if pool in way.busy else "-"


def _jobs(jobs: Sequence["PlannedJob"]) -> str:
    rows = [
        (
            str(job.job),
            job.name if not job.copy else f"{job.name} (copy {job.copy})",
            _seconds(job.arrived_s),
            _seconds(job.recorded_s),
            _seconds(job.simulated_s),
            _seconds(job.planned_s),
        )
        for job in jobs[:JOBS_SHOWN]
    ]
    headers = ("JOB", "MODEL", "ARRIVED", "RECORDED", "SIMULATED", "PLANNED")
    text = table(headers, rows, right=(0, 2, 3, 4, 5), give=1)
    return text if len(jobs) <= JOBS_SHOWN else f"{text}\n … {len(jobs) - JOBS_SHOWN} more: -o json"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f}s" if seconds < 59.95 else formatting.duration(seconds)
