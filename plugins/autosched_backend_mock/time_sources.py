"""Where the times of the stages come from: made up, an instance of the scheduling problem, or a run of the past."""

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autosched.backend import Network, Skipped
from autosched.errors import RequestError
from autosched.model import NETWORK_TASK, JobSpec, TaskIndex, TaskInfo
from autosched_backend_mock.options import STANDARD, Options

if TYPE_CHECKING:  # most jobs need neither, and a hundred clients start at once
    from autosched.workloads.instances import Instance, InstanceJob
    from autosched.workloads.recordings import RecordedJob, RecordedStep


class Times(Protocol):
    """One job: what its network consists of, and how long each of its steps takes."""

    def network(self) -> Network:
        """Tasks, default budget and candidates per round."""

    def rounds(self, task: TaskIndex) -> int | None:
        """How many rounds the task has; None: any number."""

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """Time of the stage in the task's nth round, counted from 0; None where the source says nothing of it.

        A round after the last one, in which candidates are measured again, takes as long as the last one.
        """


class Synthetic:
    """As many operators as asked for; every time is the one that the options set."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def network(self) -> Network:
        """Operators of three weights, the later ones the larger."""
        tasks = tuple(
            TaskInfo(task=i, name=f"op{i}", workload=f"mock-{i}", weight=1 + i % 3, flops=1e6 * i, shape=f"made up {i}")
            for i in range(1, self._tasks + 1)
        )
        return Network(tasks=tasks, skipped=(Skipped("reshape", "no arithmetic"),), default_trials=16 * len(tasks))

    def rounds(self, task: TaskIndex) -> int | None:
        """Any number."""
        return None

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """The options say it."""
        return None


class FromInstance:
    """One task, one candidate a round, and as many rounds as the instance's job has iterations.

    Which host and when the job arrives is for the submitter to say; selecting is part of the update.
    """

    def __init__(self, job: "InstanceJob", name: str) -> None:
        self._iterations = job.iterations
        self._name = name

    def network(self) -> Network:
        """The default budget is the instance's number of rounds."""
        task = TaskInfo(task=1, name=self._name, workload=self._name, flops=1.0, shape="of an instance")
        return Network(tasks=(task,), default_trials=len(self._iterations), batch=1)

    def rounds(self, task: TaskIndex) -> int | None:
        """One for each iteration."""
        return len(self._iterations)

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """Times of the instance; None for the network's own stages."""
        if task == NETWORK_TASK:
            return None
        build_s, profile_s, update_s = self._iterations[min(nth, len(self._iterations) - 1)]
        return {"build": build_s, "profile": profile_s, "update": update_s}.get(stage, 0.0)


class Replayed:
    """The tasks of a recorded job, one candidate a round, each step with the time of its predecessor.

    Which task has the next round is decided by the client anew. A stage that a recorded round did not reach takes 0 s.
    """

    def __init__(self, job: "RecordedJob") -> None:
        self._job = job
        steps = [*job.before, *job.after]
        self._network = {step.stage: _worked_s(step) for step in steps}
        self._rounds = {
            task: [{step.stage: _worked_s(step) for step in steps} for steps in rounds]
            for task, rounds in job.tasks.items()
        }

    def network(self) -> Network:
        """The default budget is the recorded number of rounds."""
        tasks = tuple(
            TaskInfo(task=task, name=f"task {task}", workload=f"recorded-{self._job.job}-{task}", flops=1.0)
            for task in sorted(self._rounds)
        )
        return Network(tasks=tasks, default_trials=sum(map(len, self._rounds.values())), batch=1)

    def rounds(self, task: TaskIndex) -> int | None:
        """As many as there were."""
        return len(self._rounds[task])

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """Recorded times."""
        if task == NETWORK_TASK:
            return self._network.get(stage, 0.0)
        rounds = self._rounds[task]
        return rounds[min(nth, len(rounds) - 1)].get(stage, 0.0)


def _worked_s(step: "RecordedStep") -> float:
    """Without what the lease cost around it: the replay has its own."""
    return step.held_s if step.worked_s is None else step.worked_s


class Clock:
    """Times as they are slept: of the source, else of the options; with their spread, scaled."""

    def __init__(self, times: Times, options: Options, seed: int) -> None:
        self.times = times
        self._options, self._seed = options, seed

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float:
        """The same for the same (seed, task, stage, round)."""
        told = self.times.seconds(task, stage, nth)
        seconds = self._options.seconds(stage) if told is None else told
        return seconds * self._options.time_scale * self._factor(f"{self._seed}/{task}/{stage}/{nth}")

    def _factor(self, key: str) -> float:
        sigma = self._options.spread
        return math.exp(random.Random(key).gauss(0.0, sigma) - sigma * sigma / 2) if sigma else 1.0


def chosen(options: Options, job: JobSpec) -> Clock:
    """The times of a job, as its options say. Raises RequestError for a file that does not have them."""
    return Clock(_source(options), options, job.seed)


def _source(options: Options) -> Times:
    if options.instance:
        return _from_instance(options)
    if options.journal:
        return _replayed(options)
    return Synthetic(options.tasks)


def _from_instance(options: Options) -> FromInstance:
    from autosched.workloads import instances

    if options.instance == STANDARD:
        there = instances.standard()
    else:
        there = instances.read(_absolute("instance", options.instance))
    instance = _named(options, {instance.name: instance for instance in there})
    if options.instance_job >= len(instance.jobs):
        raise RequestError(
            f"instance_job is {options.instance_job}, but {instance.name} has {len(instance.jobs)} jobs; choose one"
            f" of 0 to {len(instance.jobs) - 1}"
        )
    return FromInstance(instance.jobs[options.instance_job], f"{instance.name}/{options.instance_job}")


def _named(options: Options, there: "dict[str, Instance]") -> "Instance":
    if not options.instance_name and len(there) == 1:
        return next(iter(there.values()))
    if (instance := there.get(options.instance_name)) is None:
        what = f"no instance named {options.instance_name!r}" if options.instance_name else "more than one instance"
        raise RequestError(f"{options.instance} has {what}; set instance_name to one of: {', '.join(there)}")
    return instance


def _replayed(options: Options) -> Replayed:
    from autosched.workloads import recordings

    recording = recordings.read(_absolute("journal", options.journal))
    jobs = {job.job: job for job in recording.jobs if job.tasks}
    if (job := jobs.get(options.journal_job)) is None:
        there = ", ".join(map(str, jobs)) or "none, so nothing can be replayed from it"
        raise RequestError(
            f"{options.journal} has no rounds of job {options.journal_job}; set journal_job to one of: {there}"
        )
    return Replayed(job)


def _absolute(option: str, path: str) -> Path:
    if not Path(path).is_absolute():
        raise RequestError(
            f"{option} is {path!r}, which the client would look for in the daemon's folder; give the whole path, from /"
        )
    return Path(path)
