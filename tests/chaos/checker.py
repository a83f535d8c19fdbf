"""Rules that hold after a run, whatever faults it had. Each rule reads the evidence and yields violations."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise, takewhile
from math import inf
from typing import Any

from autosched.model import NETWORK_TASK, Failure, JobState, Purpose
from autosched.protocol import Span
from chaos.evidence import Evidence, Life, LoggedStep

CANCEL_S = 5.0
"""Maximum time in seconds between the cancellation of a job and the start of a step that was ordered before."""
Rule = Callable[[Evidence], Iterator[str]]
Timed = dict[str, dict[tuple[float, ...], float]]
"""Latencies in seconds that were measured of each object code, with the time at which the step of each began."""


def submits(evidence: Evidence) -> Iterator[str]:
    """Each acknowledged submit is present, as submitted."""
    for line in _told(evidence, "submitted"):
        there = evidence.jobs.get(line["job"])
        if there is None or there.name != line["name"]:
            yield f"job {line['job']} ({line['name']}) was accepted, and is {there and there.name!r} in the database"


def cancels(evidence: Evidence) -> Iterator[str]:
    """Each acknowledged cancel holds: the job has ended, and no further step of it begins."""
    for line in _told(evidence, "cancelled"):
        job = line["job"]
        if job not in evidence.jobs:
            continue  # reported above
        if job in evidence.cancels and evidence.ends.get(job) != [JobState.CANCELLED]:
            yield f"job {job} was cancelled, and its ends are {evidence.ends.get(job)}"
        late = [
            s
            for life in (*evidence.of(job), *evidence.helpers_of(job))
            for s in life.steps
            if s.began_at > line["at"] + CANCEL_S
        ]
        if late:
            yield f"job {job} was cancelled at {line['at']:.3f}, and began {_name(late[0])} at {late[0].began_at:.3f}"


def ends(evidence: Evidence) -> Iterator[str]:
    """Each job ends once, with the state that its user saw."""
    for job, spec in evidence.jobs.items():
        if len(evidence.ends.get(job, [])) != 1:
            yield f"job {job} ({spec.name}) has these ends: {evidence.ends.get(job, [])}"
    for line in _told(evidence, "ended"):
        if [line["state"]] != evidence.ends.get(line["job"]):
            yield f"of job {line['job']} its user heard {line['state']}; it has {evidence.ends.get(line['job'])}"


def completions(evidence: Evidence) -> Iterator[str]:
    """Each step that was acknowledged to its client counts once, and no step counts that no client ran.

    The client of a job with helpers does not log all steps, nor does one of a task with a blocked candidate, which it
    leaves out; their trials are checked all the same.
    """
    timed = _timed_codes(evidence)
    for job in [job for job in evidence.jobs if not evidence.helpers_of(job)]:
        lives = evidence.of(job)
        tasks = {step.task for life in lives for step in life.steps} | {t for j, t in evidence.spans if j == job}
        for task in tasks - {r.task for r in evidence.records.get(job, []) if r.failure is Failure.BLOCKED}:
            counted = [span for span in evidence.spans.get((job, task), []) if span.outcome != "lost"]
            if not _fits(lives, task, counted, evidence.ends.get(job) == [JobState.DONE], timed):
                yield (
                    f"task {task} of job {job}: its clients made"
                    f" {[s.stage for life in lives for s in life.steps if s.task == task]},"
                    f" counted are {[span.stage for span in counted]}"
                )


def _fits(lives: list[Life], task: int, counted: list[Span], done: bool, timed: Timed) -> bool:
    """Returns whether the counted steps are those that ran, except the last steps of a dead client.

    After a build whose object code was all timed before, the profile step calls no backend, so that no client logs it.
    """
    reached = {0}
    for life in lives:
        of_task = [step for step in life.steps if step.task == task]
        for step in of_task:
            further = {n + 1 for n in reached if n < len(counted) and _is(step, counted[n])}
            if _all_timed(step, timed):
                further |= {n + 1 for n in further if n < len(counted) and counted[n].stage == "profile"}
            unheard = step is of_task[-1] and not (done and life is lives[-1])
            reached = further | (reached if unheard else set())
    return len(counted) in reached


def _timed_codes(evidence: Evidence) -> Timed:
    """Returns what was measured of each object code."""
    timed: Timed = {}
    for step in evidence.steps:
        for candidate, latency_s in step.measured:
            if latency_s and (code := step.codes.get(candidate)):
                known = timed.setdefault(code, {})
                known[latency_s] = min(step.began_at, known.get(latency_s, step.began_at))
    return timed


def _all_timed(step: LoggedStep, timed: Timed) -> bool:
    """Returns whether a build step has made nothing but object code that was timed before."""
    codes = [code for code in step.codes.values() if code is not None]
    before = [min(timed.get(code, {}).values(), default=inf) < step.began_at for code in codes]
    return step.stage == "build" and bool(step.codes) and all(before)


def _is(step: LoggedStep, span: Span) -> bool:
    return (
        step.ended_at is not None
        and (step.stage, step.units) == (span.stage, span.units)
        and step.ok == (span.outcome == "done")
    )


def repetitions(evidence: Evidence) -> Iterator[str]:
    """No client runs a step twice: only its own death may cost work."""
    for name, lives in evidence.lives.items():
        for life in lives if name not in evidence.helpers else ():
            for task in {step.task for step in life.steps}:
                for before, after in pairwise(step for step in life.steps if step.task == task):
                    if before.stage == after.stage and (before.ok or before.ended_at is None):
                        ended = "never" if before.ended_at is None else f"{before.ended_at:.3f}"
                        yield (
                            f"{_name(before)} was made again by the same client: from {before.began_at:.3f} to {ended},"
                            f" and from {after.began_at:.3f}; counted are {_counted(evidence, name, task)}"
                        )


def _counted(evidence: Evidence, name: str, task: int) -> list[str]:
    """Returns the steps of a task that the daemon has counted, in words."""
    jobs = [job for job, spec in evidence.jobs.items() if spec.name == name]
    spans = [span for job in jobs for span in evidence.spans.get((job, task), [])]
    return [f"{span.stage} {span.started_at:.3f}-{span.ended_at or 0.0:.3f} {span.outcome}" for span in spans]


def overlaps(evidence: Evidence) -> Iterator[str]:
    """No two steps use one unit at the same time."""
    by_unit: dict[str, list[LoggedStep]] = {}
    for step in evidence.steps:
        if step.others:
            yield f"{_name(step)} began on {step.units} while process {step.others} was there"
        for unit in step.units:
            by_unit.setdefault(unit, []).append(step)
    for unit, steps in by_unit.items():
        done = sorted((s for s in steps if s.ended_at is not None), key=lambda step: step.began_at)
        for before, after in pairwise(done):
            if (before.ended_at or 0.0) > after.began_at:
                yield f"{_name(before)} and {_name(after)} overlap on {unit}"


def trials(evidence: Evidence) -> Iterator[str]:
    """Each trial counts once, is stored as measured, and is stored if this was acknowledged to its client."""
    timed = _timed_codes(evidence)
    for job, spec in evidence.jobs.items():
        records = evidence.records.get(job, [])
        numbers = Counter(record.number for record in records)
        yield from (f"record {number} of job {job} is there {n} times" for number, n in numbers.items() if n > 1)
        plain = Counter((r.task, r.candidate.hex()) for r in records if r.purpose is Purpose.TRIAL)
        yield from (f"candidate {name} of job {job} counts {n} times" for name, n in plain.items() if n > 1)
        budget = spec.trials
        if budget is not None and plain.total() > budget:
            yield f"job {job} has {plain.total()} trials, and asked for {budget}"
        endless = spec.options.get("lets") == "mock"  # of a real network, all candidates may have been tried
        if budget is not None and endless and evidence.ends.get(job) == [JobState.DONE] and plain.total() < budget:
            yield f"job {job} is done with {plain.total()} trials of {budget}"
        stored = Counter((r.task, r.candidate.hex(), r.latency_s) for r in records)
        lives = (*evidence.of(job), *evidence.helpers_of(job))
        steps = [(life, step) for life in lives for step in life.steps]
        measured = Counter((s.task, *one) for _, s in steps for one in s.measured)
        copied = Counter((r.task, r.candidate.hex(), r.latency_s) for r in records if r.copied)
        left_out = Counter((r.task, r.candidate.hex(), ()) for r in records if r.failure is Failure.BLOCKED)
        yield from (f"record {one} of job {job} was never measured" for one in stored - copied - left_out - measured)
        for task, candidate, latency_s in copied:
            codes = {s.codes.get(candidate) for _, s in steps if s.task == task}
            if not any(code and latency_s in timed.get(code, {}) for code in codes):
                yield f"record {task, candidate, latency_s} of job {job} was measured of no equal object code"
        for life in evidence.of(job):
            acknowledged = {(s.task, *one) for s in life.acknowledged() for one in s.measured}
            yield from (f"{one} of job {job} was acknowledged, and is not stored" for one in acknowledged - set(stored))


RULES: tuple[Rule, ...] = (submits, cancels, ends, completions, repetitions, overlaps, trials)


def violations(evidence: Evidence) -> list[str]:
    """Returns the violations of all rules; expected to be empty."""
    return [f"{rule.__name__}: {found}" for rule in RULES for found in rule(evidence)]


def counts(evidence: Evidence) -> dict[str, int]:
    """Returns the number of checked items, and the cost of clients' deaths."""
    dead = [life for lives in evidence.lives.values() for life in lives[:-1]]
    again = [len(_to_make_again(life)) for life in dead]
    measured = Counter((s.job, s.task, one[0]) for s in evidence.steps if s.stage == "profile" for one in s.measured)
    stored = sum(map(len, evidence.records.values()))
    return {
        "jobs": len(evidence.jobs),
        "clients": sum(map(len, evidence.lives.values())),
        "clients_that_died": len(dead),
        "helpers": sum(map(len, evidence.helpers.values())),
        "submits_acknowledged": len(_told(evidence, "submitted")),
        "cancels_acknowledged": len(_told(evidence, "cancelled")),
        "steps_made": len(evidence.steps),
        "steps_acknowledged": sum(len(life.acknowledged()) for lives in evidence.lives.values() for life in lives),
        "steps_running_at_a_death": sum(step.ended_at is None for life in dead for step in life.steps),
        "steps_to_make_again_max": max(again, default=0),
        "records": stored,
        "measured": measured.total(),
    }


def cost_of_deaths_s(evidence: Evidence) -> float:
    """Returns the time that jobs waited after the death of a client, and the time of the repeated work, in seconds."""
    cost_s = 0.0
    for lives in evidence.lives.values():
        for life, following in pairwise(life for life in lives if life.steps):
            died_at = max(step.ended_at or step.began_at for step in life.steps)
            resumed_at = next((step.began_at for step in following.steps if step.task != NETWORK_TASK), died_at)
            running_s = sum(died_at - step.began_at for step in life.steps if step.ended_at is None)
            cost_s += resumed_at - died_at + running_s
            cost_s += sum((step.ended_at or 0.0) - step.began_at for step in _to_make_again(life))
    return cost_s


def _to_make_again(life: Life) -> list[LoggedStep]:
    """Returns the steps whose results die with their client: candidates that were selected and built, but not
    measured."""
    known = [step for step in life.acknowledged() if step.task != NETWORK_TASK]
    again: list[LoggedStep] = []
    for task in {step.task for step in known}:
        of_task = reversed([step for step in known if step.task == task])
        again += takewhile(lambda step: step.stage in ("select", "build"), of_task)
    return again


def _told(evidence: Evidence, event: str) -> list[dict[str, Any]]:
    return [line for line in evidence.told if line["event"] == event]


def _name(step: LoggedStep) -> str:
    return f"{step.stage} of task {step.task} of {step.job} (process {step.pid})"
