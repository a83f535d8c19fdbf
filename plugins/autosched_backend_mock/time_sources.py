"""Sources of the stages' times: synthetic, an instance of the scheduling problem, or a recorded run."""

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
    """One job: its network, and the duration of each of its steps."""

    def network(self) -> Network:
        """Tasks, default budget and candidates per round."""

    def rounds(self, task: TaskIndex) -> int | None:
        """Number of rounds of the task; None: any number."""

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """Seconds of the stage in the task's nth round, counted from 0; None if the source has no time for it.

        A round after the last one, in which candidates are measured again, takes as long as the last one.
        """


class Synthetic:
    """The requested number of operators, with the times of the options."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def network(self) -> Network:
        """Operators of three weights, in ascending order."""
        tasks = tuple(
            TaskInfo(task=i, name=f"op{i}", workload=f"mock-{i}", weight=1 + i % 3, flops=1e6 * i, shape=f"made up {i}")
            for i in range(1, self._tasks + 1)
        )
        return Network(tasks=tasks, skipped=(Skipped("reshape", "no arithmetic"),), default_trials=16 * len(tasks))

    def rounds(self, task: TaskIndex) -> int | None:
        """Any number."""
        return None

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """The time of the options."""
        return None


class FromInstance:
    """One task, one candidate a round, and the rounds of the instance's job.

    The submitter decides on host and arrival; selecting is part of the update.
    """

    def __init__(self, job: "InstanceJob", name: str) -> None:
        self._iterations = job.iterations
        self._name = name

    def network(self) -> Network:
        """A network whose default budget is the instance's number of rounds."""
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
    """The tasks of a recorded job, one candidate a round, each step with its recorded time.

    The client decides again which task has the next round. A stage that a recorded round did not reach takes 0 s.
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
        """A network whose default budget is the recorded number of rounds."""
        tasks = tuple(
            TaskInfo(task=task, name=f"task {task}", workload=f"recorded-{self._job.job}-{task}", flops=1.0)
            for task in sorted(self._rounds)
        )
        return Network(tasks=tasks, default_trials=sum(map(len, self._rounds.values())), batch=1)

    def rounds(self, task: TaskIndex) -> int | None:
        """The recorded number."""
        return len(self._rounds[task])

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float | None:
        """Recorded times."""
        if task == NETWORK_TASK:
            return self._network.get(stage, 0.0)
        rounds = self._rounds[task]
        return rounds[min(nth, len(rounds) - 1)].get(stage, 0.0)


def _worked_s(step: "RecordedStep") -> float:
    """Seconds of the stage itself, without the rest of the lease, which the replay has again."""
    return step.held_s if step.worked_s is None else step.worked_s


class Clock:
    """The times to sleep: of the source, otherwise of the options; random and scaled."""

    def __init__(self, times: Times, options: Options, seed: int) -> None:
        self.times = times
        self._options, self._seed = options, seed

    def seconds(self, task: TaskIndex, stage: str, nth: int) -> float:
        """Equal for equal (seed, task, stage, round)."""
        told = self.times.seconds(task, stage, nth)
        seconds = self._options.seconds(stage) if told is None else told
        return seconds * self._options.time_scale * self._factor(f"{self._seed}/{task}/{stage}/{nth}")

    def _factor(self, key: str) -> float:
        sigma = self._options.spread
        return math.exp(random.Random(key).gauss(0.0, sigma) - sigma * sigma / 2) if sigma else 1.0


def chosen(options: Options, job: JobSpec) -> Clock:
    """The times of a job's options. Raises RequestError for a file without them."""
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
