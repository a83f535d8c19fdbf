"""The course of a job: what each of its tasks needs next. Pure; the client reports it to the daemon as load.

Task 0 is the network: import, then (when all trials are spent) compile, then evaluate. Every other task goes round
select -> build -> profile -> update. Only as many tasks are under way as keep all lanes and devices fed: with more, the
decision which task deserves the next round would be made on older news.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from autosched.backend import Network
from autosched.client.allocation import Share, next_share
from autosched.model import NETWORK_TASK, JobFailure, JobLoad, JobSpec, Record, TaskIndex, TaskLoad

HOST = "host"
ROUND = ("select", "build", "profile", "update")
NETWORK_STAGES = ("import", "compile", "evaluate")
NETWORK_TIMEOUT_S = 1800.0
"""Importing and compiling a large model, or timing a slow one, takes minutes."""


@dataclass
class Course:
    """What was done, and what comes next."""

    spec: JobSpec
    lanes: int
    devices: int
    network: Network | None = None
    shares: dict[TaskIndex, Share] = field(default_factory=dict)
    trials: int = 0
    """The whole budget."""
    spent: int = 0
    """Trials measured or under way."""
    stage: dict[TaskIndex, str] = field(default_factory=lambda: {NETWORK_TASK: "import"})
    """What each task that is under way does, or waits to do."""
    running: set[TaskIndex] = field(default_factory=set)
    """Tasks whose step runs."""
    allotted: dict[TaskIndex, int] = field(default_factory=dict)
    """Trials of the round under way."""
    durations_s: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=9)))
    last_error: str = ""
    """Stage and message of the last step that failed as a whole."""
    failure: JobFailure | None = None
    complete: bool = False

    def started(self, task: TaskIndex) -> None:
        """A step of the task runs; the next call that names the task is its end."""
        self.running.add(task)

    # What happened ------------------------------------------------------------------------------------------

    def imported(self, network: Network, records: Sequence[Record], borrowed: int = 0) -> JobLoad:
        """The network is known, and what was measured; the first `borrowed` records cost this job no trials."""
        self.running.discard(NETWORK_TASK)
        self.network = network
        self.trials = network.default_trials if self.spec.trials is None else self.spec.trials
        self.spent = min(len(records) - borrowed, self.trials)
        for info in network.tasks:
            self.shares[info.task] = Share(info.task, info.weight, info.flops)
        self._replay(records, network.batch)
        del self.stage[NETWORK_TASK]
        return self._report(self._go_on())

    def _replay(self, records: Sequence[Record], batch: int) -> None:
        """Count earlier records as rounds of a full batch each."""
        for share in self.shares.values():
            best: float | None = None
            mine = [record.best_s for record in records if record.task == share.task]
            for start in range(0, len(mine), batch):
                valid = [s for s in [best, *mine[start : start + batch]] if s is not None]
                best = min(valid, default=None)
                share.best_s.append(best)

    def selected(self, task: TaskIndex, count: int) -> JobLoad:
        """Select has answered with `count` candidates; none means that the task's space is exhausted."""
        self.running.discard(task)
        self.spent -= self.allotted[task] - count
        self.allotted[task] = count
        if count == 0:
            self.shares[task].exhausted = True
            return self._round_over(task)
        return self._advance(task)

    def advanced(self, task: TaskIndex) -> JobLoad:
        """Build or profile is done."""
        self.running.discard(task)
        return self._advance(task)

    def updated(self, task: TaskIndex, best_s: float | None) -> JobLoad:
        """The round is over; `best_s` is the best latency it measured, None when nothing was valid."""
        self.running.discard(task)
        share = self.shares[task]
        known = [s for s in (share.best_s[-1] if share.best_s else None, best_s) if s is not None]
        share.best_s.append(min(known, default=None))
        share.strikes = 0 if best_s is not None else share.strikes + 1
        return self._round_over(task)

    def failed(self, task: TaskIndex, measured: int, error: str) -> JobLoad:
        """A step of the task's round failed as a whole after `measured` trials; what was not measured is given back."""
        self.running.discard(task)
        self.last_error = error
        self.spent -= self.allotted.get(task, 0) - measured
        self.shares[task].strikes += 1
        return self._round_over(task)

    def compiled(self) -> JobLoad:
        """The network is compiled."""
        self.running.discard(NETWORK_TASK)
        self.stage[NETWORK_TASK] = "evaluate"
        return self._report([NETWORK_TASK])

    def evaluated(self) -> JobLoad:
        """The results are with the daemon: nothing is left to do."""
        self.running.discard(NETWORK_TASK)
        self.complete = True
        return self._report([])

    def broken(self, failure: JobFailure) -> JobLoad:
        """The job cannot go on."""
        self.running.discard(NETWORK_TASK)
        self.failure = failure
        return self._report([])

    # What comes next ----------------------------------------------------------------------------------------

    def load(self) -> JobLoad:
        """The load of all tasks, for a daemon that asks."""
        return self._report(sorted({NETWORK_TASK, *self.shares}))

    def _advance(self, task: TaskIndex) -> JobLoad:
        self.stage[task] = ROUND[ROUND.index(self.stage[task]) + 1]
        return self._report([task])

    def _round_over(self, task: TaskIndex) -> JobLoad:
        del self.stage[task]
        self.allotted.pop(task, None)
        return self._report([task, *(other for other in self._go_on() if other != task)])

    def _go_on(self) -> list[TaskIndex]:
        """Give rounds to the tasks that deserve them; when the budget is spent and all is quiet, compile."""
        assert self.network is not None
        chosen: list[TaskIndex] = []
        under_way_max = self.lanes + self.devices + 1
        while self.spent < self.trials and len(self.stage) < under_way_max:
            share = next_share(s for s in self.shares.values() if s.task not in self.stage)
            if share is None:
                break
            count = min(self.network.batch, self.trials - self.spent)
            if not share.best_s:  # half of the budget is kept for what the first rounds say is worth it
                count = min(count, max(1, self.trials // (2 * len(self.shares))))
            self.stage[share.task], self.allotted[share.task] = "select", count
            self.spent += count
            chosen.append(share.task)
        if not self.stage and self._nothing_worked():
            self.failure = JobFailure(
                "job_failed", f"no task could be tuned; the last step that failed: {self.last_error}"
            )
        elif not self.stage:
            self.stage[NETWORK_TASK] = "compile"
            chosen.append(NETWORK_TASK)
        return chosen

    def _nothing_worked(self) -> bool:
        """Steps failed as a whole until every task was given up, and none has a schedule."""
        valid = any(share.best_s and share.best_s[-1] is not None for share in self.shares.values())
        return bool(self.last_error) and self.spent < self.trials and not valid

    def _report(self, tasks: Sequence[TaskIndex]) -> JobLoad:
        return JobLoad(
            tasks=tuple(self._task_load(task) for task in tasks), complete=self.complete, failure=self.failure
        )

    def _task_load(self, task: TaskIndex) -> TaskLoad:
        stage = self.stage.get(task)
        if stage is None:
            share = self.shares.get(task)
            return TaskLoad(task=task, complete=share is not None and not share.open)
        if task in self.running:
            after = ROUND[ROUND.index(stage) + 1] if stage in ROUND[:-1] else ""
            return TaskLoad(
                task=task,
                stage_done=False,
                resources_now=self._resources(stage),
                resources_next=self._resources(after),
                stage_next=after,
            )
        past = self.durations_s[stage]
        share = self.shares.get(task)
        return TaskLoad(
            task=task,
            resources_next=self._resources(stage),
            stage_next=stage,
            expected_s=median(past) if past else None,
            gain=share.gain_s() if share is not None else None,
            timeout_s=NETWORK_TIMEOUT_S if stage in NETWORK_STAGES else None,
        )

    def _resources(self, stage: str) -> tuple[str, ...]:
        """The pools of which a stage needs one unit each; none for no stage."""
        if not stage:
            return ()
        return (f"device:{self.spec.device}",) if stage in ("profile", "evaluate") else (HOST,)
