"""The course of a job: what each of its tasks needs next. Pure; the client reports it to the daemon as load.

Task 0 is the network: import, then baseline (what its user would run otherwise), then (when all trials are spent)
compile, then evaluate. Compile and evaluate also come right after the baseline and in the middle of the search, where
it is worth it (`early`), and a job that is to end as soon as a module is faster than the baseline ends with them. Every
other task goes round select -> build -> profile -> update. Only as many tasks are under way as keep all lanes and
devices fed: with more, the decision which task deserves the next round would be made on older news.

Two kinds of rounds select nothing and cost no trials: what was disturbed, and what has failed once, is measured again
(build -> profile -> update), and when no more trials are to come, the best candidates of each task meet in its finals
(build -> profile). What has failed is measured again on another device of the kind, if there is one.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from statistics import median

import msgspec

from autosched.backend import Baseline, GoalReached, Network, OperatorTimes, Timing
from autosched.client.plan import latency_goal
from autosched.client.plan.allocation import LIGHT_TRIALS, TaskRounds, leading, light, next_share, outdone
from autosched.client.plan.blocked_candidates import BlockedCandidates
from autosched.client.plan.early_builds import BuildMeasurement, EarlyBuilds, in_tasks_s, untuned
from autosched.client.plan.rounds import PastRounds, budget, first_count, pasts, searched, spent
from autosched.model import NETWORK_TASK, JobFailure, JobLoad, JobSpec, Purpose, Record, TaskIndex, TaskLoad, UnitName
from autosched.records import record_selection
from autosched.records.failure_attribution import DOUBTFUL
from autosched.records.network_estimate import network_s

HOST = "host"
STAGES = {
    Purpose.TRIAL: ("select", "build", "profile", "update"),
    Purpose.AGAIN: ("build", "profile", "update"),
    Purpose.FINAL: ("build", "profile"),
}
AGAIN_SHARE = 0.25
"""So much of the budget may be measured again, at least one batch: a device that never comes to rest costs no more."""
RETRIED_LEAST = 4
"""So many candidates that failed on one device wait for each other, while there is something else to do."""
FINALS_MAX = 2
"""Finals that were disturbed, or failed, are held once more."""
NETWORK_STAGES = ("import", "baseline", "compile", "evaluate")
ON_DEVICE = ("profile", "baseline", "evaluate")
"""Stages that measure."""
NETWORK_TIMEOUT_S = 1800.0
"""Importing and compiling a large model, or timing a slow one, takes minutes."""
CANDIDATE_TIMEOUT_S = 20.0
"""A step with many candidates may take so long for each of them: as long as backends let a slow one build and run."""
BATCH_USUAL, DAY_S = 30, 86_400.0
"""Up to so many what the daemon gives any step is enough; and nobody may ask for more than a day."""


@dataclass
class JobPlan:
    """What was done, and what comes next."""

    spec: JobSpec
    lanes: int
    devices: int
    network: Network | None = None
    shares: dict[TaskIndex, TaskRounds] = field(default_factory=dict)
    trials: int = 0
    """The whole budget."""
    spent: int = 0
    """Trials measured or under way."""
    stage: dict[TaskIndex, str] = field(default_factory=lambda: {NETWORK_TASK: "import"})
    """Present or next stage of each task under way."""
    running: set[TaskIndex] = field(default_factory=set)
    """Tasks whose step runs."""
    allotted: dict[TaskIndex, int] = field(default_factory=dict)
    """Trials of the round under way."""
    purpose: dict[TaskIndex, Purpose] = field(default_factory=dict)
    """Purpose of the rounds under way that select nothing."""
    candidates: dict[TaskIndex, tuple[bytes, ...]] = field(default_factory=dict)
    """Candidates of such a round."""
    records: dict[TaskIndex, list[Record]] = field(default_factory=dict)
    """Records of each task, those of another job first."""
    own: dict[int, tuple[TaskIndex, int]] = field(default_factory=dict)
    """Where the job's own records stand, by trial."""
    codes: dict[str, tuple[TaskIndex, int]] = field(default_factory=dict)
    """Where a record with a latency of each object code stands, by the digest of the code."""
    shaky: set[TaskIndex] = field(default_factory=set)
    """Tasks with disturbed records."""
    doubts: dict[TaskIndex, dict[bytes, UnitName]] = field(default_factory=dict)
    """Candidates that failed as they may on a sick device, and where; empty: more is known of them."""
    poison: BlockedCandidates = field(default_factory=BlockedCandidates)
    avoided: dict[TaskIndex, UnitName] = field(default_factory=dict)
    """On which device a round under way is not to measure."""
    half: dict[TaskIndex, PastRounds] = field(default_factory=dict)
    """Tasks of which an earlier client left a round unfinished."""
    attempts: Counter[tuple[TaskIndex, bytes]] = field(default_factory=Counter)
    """How often each candidate was measured again."""
    finals: dict[TaskIndex, int] = field(default_factory=dict)
    """Tasks that can have finals, and how many they had."""
    durations_s: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=9)))
    """How long the last steps of each kind took."""
    last_error: str = ""
    """Stage and message of the last step that failed as a whole."""
    failure: JobFailure | None = None
    complete: bool = False
    hints: dict[TaskIndex, Sequence[bytes]] = field(default_factory=dict)
    """Schedules that were measured elsewhere; a job without trials holds finals among them."""
    early: EarlyBuilds = field(default_factory=EarlyBuilds)
    """Builds of the network in the middle of the search."""
    finishing: bool = False
    """No more rounds begin, and those under way end with their step: what was looked for is found."""
    why_finished: str = ""
    """Why the search ended before its trials were made, in words."""

    def started(self, task: TaskIndex) -> None:
        """A step of the task runs; the next call that names the task is its end."""
        self.running.add(task)
        if task == NETWORK_TASK and self.stage[task] == "compile" and self.early.under_way:
            self.early.begin(self.tasks_s)  # it is compiled with what is known now

    def kind(self, task: TaskIndex, stage: str) -> str:
        """The kind of a step as far as its length goes: a final builds less and measures longer than a trial."""
        return f"{self.purpose[task].value} {stage}" if task in self.purpose else stage

    # What happened ------------------------------------------------------------------------------------------

    def imported(
        self,
        network: Network,
        records: Sequence[Record],
        borrowed: int = 0,
        finals: Collection[TaskIndex] = (),
        *,
        compares: bool = False,
        hints: Mapping[TaskIndex, Sequence[bytes]] | None = None,
    ) -> JobLoad:
        """The network is known, and what was measured; the first `borrowed` records cost this job no trials.

        `finals`: tasks whose candidates can be compared with each other and with the default. `compares`: the backend
        can measure what the user would run otherwise. `hints`: first candidates of tasks.
        """
        self.running.discard(NETWORK_TASK)
        self.network = network
        self.trials = budget(network, self.spec.trials)
        self.spent = spent(records[borrowed:], self.trials)
        for info in network.tasks:
            self.shares[info.task] = TaskRounds(info.task, info.weight, info.flops, groups=info.groups)
            self.records.setdefault(info.task, [])
        self.hints = dict(hints or {})
        self.finals = dict.fromkeys((task for task in finals if task not in network.recalled.taken), 0)
        for record in records[:borrowed]:
            self.records.setdefault(record.task, []).append(record)
        for record in records[borrowed:]:
            self.recorded(record)
        self._replay(borrowed, records)
        for task in network.recalled.taken:
            self.shares[task].exhausted = True
        del self.stage[NETWORK_TASK]
        known = self.early.comparison  # by an earlier client
        self.early.builds = int(known is not None)
        if known is not None and known.module_s is not None and (self.spec.until_faster or self._goal_is_met):
            self._finish_search("a build met the goal")
        elif known is None and compares and self._searching and not network.tasks_only:
            self.stage[NETWORK_TASK] = "baseline"
        begun = [NETWORK_TASK] if NETWORK_TASK in self.stage else []
        return self._report(list(dict.fromkeys([*begun, *self._go_on()])))

    def recorded(self, record: Record) -> None:
        """The job has another record."""
        own = self.records.setdefault(record.task, [])
        self.own[record.trial] = record.task, len(own)
        own.append(record)
        if record.code and record.latency_s and self.timing(record.code) is None:
            self.codes[record.code] = self.own[record.trial]
        if record.disturbed:
            self.shaky.add(record.task)
        doubts = self.doubts.setdefault(record.task, {})
        if record.purpose is Purpose.NETWORK or doubts.get(record.candidate) == "" or record.candidate in doubts:
            doubts[record.candidate] = ""
        elif record.failure in DOUBTFUL and record.purpose not in record_selection.FINALS:
            doubts[record.candidate] = record.device
        if record.purpose is Purpose.AGAIN and self.purpose.get(record.task) is not Purpose.AGAIN:
            self.attempts[record.task, record.candidate] += 1  # by an earlier client

    def timing(self, code: str) -> Record | None:
        """A record of this object code, with a latency that nothing disturbed."""
        if (place := self.codes.get(code)) is None:
            return None
        task, index = place
        record = self.records[task][index]
        return None if record.disturbed else record

    def tagged(self, trials: Iterable[int], reason: str) -> list[Record]:
        """Something disturbed these records; each task measures its own again when its next round begins."""
        changed = []
        for trial in trials:
            if (place := self.own.get(trial)) is None:
                continue
            task, index = place
            if not (record := self.records[task][index]).disturbed:
                self.records[task][index] = tagged = msgspec.structs.replace(record, disturbed=reason)
                self.shaky.add(task)
                changed.append(tagged)
        return changed

    def _replay(self, borrowed: int, records: Sequence[Record]) -> None:
        """Count earlier records as rounds; the one that was cut off is to be finished."""
        assert self.network is not None
        for task, found in pasts(self.network, self.spec.trials, records, borrowed).items():
            for whole in found.whole:
                self._count_round(self.shares[task], whole)
            if found.half:
                self.half[task] = found

    @staticmethod
    def _count_round(share: TaskRounds, records: Iterable[Record]) -> None:
        best = [s for s in (*share.best_s[-1:], *(record.best_s for record in records)) if s is not None]
        share.best_s.append(min(best, default=None))

    def _count_half(self, task: TaskIndex) -> None:
        """The round that an earlier client had begun is given up."""
        if (found := self.half.pop(task, None)) is not None:
            self._count_round(self.shares[task], found.half)

    def selected(self, task: TaskIndex, count: int) -> JobLoad:
        """Select has answered with `count` candidates; none means that the task's space is exhausted."""
        self.running.discard(task)
        self.spent -= self.allotted[task] - count
        self.allotted[task] = count
        if count == 0:
            self._count_half(task)
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
        if task in self.purpose:  # it was no round of the search
            share.best_s[-1:] = [min(known, default=None)]
            return self._round_over(task)
        share.best_s.append(min(known, default=None))
        self.early.rounds += 1
        self.half.pop(task, None)
        share.strikes = 0 if best_s is not None else share.strikes + 1
        return self._round_over(task)

    def failed(self, task: TaskIndex, measured: int, error: str) -> JobLoad:
        """A step of the task's round failed as a whole after `measured` trials; what was not measured is given back.

        What a search has measured before its profile step failed, it still learns.
        """
        self.running.discard(task)
        self.last_error = error
        if task not in self.purpose:
            if measured and self.stage[task] == "profile":
                self.spent -= self.allotted[task] - measured
                self.allotted[task] = measured
                return self._advance(task)
            self._count_half(task)
            self.spent -= self.allotted.get(task, 0) - measured
            self.shares[task].strikes += 1
        return self._round_over(task)

    def baseline(self, found: Baseline | None) -> JobLoad:
        """What the user would run otherwise was measured; None: there is nothing."""
        self.early.measured_baseline(found)
        return self._network_over()

    def compiled(self) -> JobLoad:
        """The network is compiled."""
        self.running.discard(NETWORK_TASK)
        self.stage[NETWORK_TASK] = "evaluate"
        return self._report([NETWORK_TASK])

    def evaluated_early(
        self, build: BuildMeasurement, operators: OperatorTimes | None = None, *, kept: bool, after_s: float
    ) -> JobLoad:
        """An early build was measured. `kept`: it is with the user, `after_s` after the start of the job's client.

        `operators`: the time of each operator in it.
        """
        assert self.network is not None
        inside, untuned_s = None, {}
        if operators is not None:
            if (inside_s := in_tasks_s(self.network.tasks, operators)) > 0.0:
                inside = inside_s, operators.whole_s
            untuned_s = untuned(self.network.tasks, operators)
            for task, seconds in untuned_s.items():
                self.shares[task].untuned_s = seconds
        self.early.measured(build, inside, untuned_s, kept=kept, after_s=after_s)
        if kept and not build.disturbed and build.timing is not None and (goal_s := self.goal_s) is not None:
            self.early.told(latency_goal.result(goal_s, build.timing, ""))
        if kept and (self.spec.until_faster or self._goal_is_met):
            self._finish_search("a build met the goal")
        return self._network_over()

    @property
    def goal_s(self) -> float | None:
        """Latency with which the search ends; None: there is none, or not yet."""
        return latency_goal.goal_s(self.spec, self.early.measurements.builds)

    @property
    def _goal_is_met(self) -> bool:
        goal = self.early.measurements.goal
        return goal is not None and goal.reached is GoalReached.MET

    def out_of_time(self) -> None:
        """The deadline of the job is so near that the network must be compiled now."""
        if self._searching:
            self._finish_search("the deadline is near")

    def _finish_search(self, why: str) -> None:
        if not self.finishing:
            self.finishing, self.why_finished = True, why

    @property
    def optional(self) -> bool:
        """Whether the job goes on when the network's step under way fails."""
        return self.early.under_way or self.stage.get(NETWORK_TASK) == "baseline"

    def gave_up_early(self) -> JobLoad:
        """A step of the network that the job can do without has failed."""
        self.early.failed()
        return self._network_over()

    def _network_over(self) -> JobLoad:
        self.running.discard(NETWORK_TASK)
        del self.stage[NETWORK_TASK]
        return self._report([NETWORK_TASK, *(task for task in self._go_on() if task != NETWORK_TASK)])

    @property
    def tasks_s(self) -> float | None:
        """Latency of the network as the sum over its tasks; None while one that it must call has none."""
        assert self.network is not None
        known = {share.task: share.latency_s for share in self.shares.values()}
        return network_s(self.network.tasks, {task: own_s for task, own_s in known.items() if own_s is not None})

    @property
    def _searching(self) -> bool:
        """Whether more trials are to come."""
        return not self.finishing and self.spent < self.trials and any(share.open for share in self.shares.values())

    def evaluated(self, build: BuildMeasurement | None = None, result: Timing | None = None) -> JobLoad:
        """The results are with the daemon: nothing is left to do. `build`: the last one, where it was measured.

        `result`: latency of the module that the user gets, unless it was kept before.
        """
        goal_s = self.goal_s
        if build is not None:
            self.early.ended(build, self.tasks_s, None if result is None else result.median_s)
        if goal_s is not None:
            self._judge_goal(goal_s, result)
        self.running.discard(NETWORK_TASK)
        self.complete = True
        return self._report([])

    def _judge_goal(self, goal_s: float, result: Timing | None) -> None:
        """Say whether the goal is met at the end. `result`: of the last build; None: the user keeps an earlier one."""
        known, why = self.early.measurements.goal, self.why_finished or self._why_spent()
        if result is not None:
            self.early.told(latency_goal.result(goal_s, result, why))
        elif known is not None:
            self.early.told(msgspec.structs.replace(known, ended=why))

    def _why_spent(self) -> str:
        if not self.trials:
            return "nothing was to be searched"
        if self.spent >= self.trials:
            return f"its {self.trials} trials are made"
        return "no task has more to gain"

    def broken(self, failure: JobFailure) -> JobLoad:
        """The job cannot go on."""
        self.running.discard(NETWORK_TASK)
        self.failure = failure
        return self._report([])

    # What comes next ----------------------------------------------------------------------------------------

    def load(self) -> JobLoad:
        """The load of all tasks, for a daemon that asks."""
        return self._report(sorted({NETWORK_TASK, *self.shares}))

    def _after(self, task: TaskIndex) -> str:
        """The stage that follows in the round under way; none at its end, or for the network."""
        stages = STAGES[self.purpose.get(task, Purpose.TRIAL)]
        stage = self.stage[task]
        return stages[stages.index(stage) + 1] if stage in stages[:-1] else ""

    def _advance(self, task: TaskIndex) -> JobLoad:
        stage = self._after(task)
        if not stage or self.finishing:
            return self._round_over(task)
        self.stage[task] = stage
        return self._report([task])

    def _round_over(self, task: TaskIndex) -> JobLoad:
        del self.stage[task]
        self.allotted.pop(task, None)
        self.purpose.pop(task, None)
        self.candidates.pop(task, None)
        self.avoided.pop(task, None)
        return self._report([task, *(other for other in self._go_on() if other != task)])

    def _go_on(self) -> list[TaskIndex]:
        """Give rounds to the tasks that deserve them; when the budget is spent and all is quiet, compile.

        Returns the tasks whose load has changed. A job without a network is complete instead.
        """
        assert self.network is not None
        chosen: list[TaskIndex] = []
        for lost in outdone(self.shares.values()):
            lost.exhausted = True
            self.finals.pop(lost.task, None)
            if lost.task not in self.stage:
                chosen.append(lost.task)
        self._build_early(chosen)
        under_way_max = self.lanes + self.devices + 1 + (NETWORK_TASK in self.stage)
        if self.stage.get(NETWORK_TASK) in ("baseline", "compile"):
            under_way_max = self.lanes + 1  # else the network would wait for its lane behind many candidates
        elsewhere, rest = partial(self._measure_elsewhere, RETRIED_LEAST), partial(self._measure_elsewhere, 1)
        beginnings = (self._finish, self._measure_again, elsewhere, self._try, rest, self._hold_finals)
        for begin in () if self.finishing or self._waits_for_known else beginnings:
            while len(self.stage) < under_way_max and (task := begin()) is not None:
                chosen.append(task)
        if not self.stage and self._nothing_worked():
            self.failure = JobFailure(
                "job_failed", f"no task could be tuned; the last step that failed: {self.last_error}"
            )
        elif not self.stage and self.network.tasks_only:
            self.complete = True
        elif not self.stage:
            self.stage[NETWORK_TASK] = "compile"
            chosen.append(NETWORK_TASK)
        return list(dict.fromkeys(chosen))

    @property
    def _waits_for_known(self) -> bool:
        """Whether what is known is measured first: it may be good enough. Then nothing is searched meanwhile."""
        first = not self.early.measurements.builds and not self.early.failures
        return self.spec.names_latency and NETWORK_TASK in self.stage and first and self._searching

    def _build_early(self, chosen: list[TaskIndex]) -> None:
        """Begin a build of the network in the middle of the search where it is worth its time."""
        assert self.network is not None
        if (
            NETWORK_TASK not in self.stage
            and not self.network.tasks_only
            and self._searching
            and self.early.wants(tasks_s := self.tasks_s, self.goal_s)
        ):
            self.early.begin(tasks_s)
            self.stage[NETWORK_TASK] = "compile"
            chosen.append(NETWORK_TASK)

    def _try(self) -> TaskIndex | None:
        """A round of the search for the task that deserves it most."""
        assert self.network is not None
        share = next_share(self.shares.values(), leading(self.shares.values()), self.stage)
        if share is None or self.spent >= self.trials:
            return None
        count = min(self.network.batch, self.trials - self.spent)
        if not share.best_s:  # half of the budget is kept for what the first rounds say is worth it
            count = min(count, first_count(self.trials, searched(self.network)))
            if share.task in light(self.shares.values()):
                count = min(count, LIGHT_TRIALS)
        return self._allot(share.task, count)

    def _allot(self, task: TaskIndex, count: int) -> TaskIndex:
        self.stage[task], self.allotted[task] = "select", count
        self.spent += count
        return task

    def _finish(self) -> TaskIndex | None:
        """A round that an earlier client had begun."""
        waiting = [task for task in self.half if task not in self.stage and self.shares[task].open]
        if not waiting or self.spent >= self.trials:
            return None
        return self._allot(waiting[0], min(self.half[waiting[0]].missing, self.trials - self.spent))

    def _measure_again(self) -> TaskIndex | None:
        """Another measurement for candidates of a task that were disturbed."""
        assert self.network is not None
        left = self._again_left()
        for task in sorted(self.shaky - self.stage.keys()):
            suspects = self._suspects(task)[: max(0, min(left, self.network.batch))]
            if suspects:
                self.attempts.update((task, candidate) for candidate in suspects)
                return self._begin(task, Purpose.AGAIN, suspects)
            self.shaky.discard(task)
        return None

    def _again_left(self) -> int:
        assert self.network is not None
        return max(self.network.batch, int(AGAIN_SHARE * self.trials)) - self.attempts.total()

    def _suspects(self, task: TaskIndex) -> list[bytes]:
        """Candidates to be measured again; empty once the finals have compared the best ones."""
        if self._settled(task) or self.finals.get(task) == FINALS_MAX:
            return []
        found = record_selection.suspects(self.records[task])
        return [candidate for candidate in found if self.attempts[task, candidate] < record_selection.ATTEMPTS_MAX]

    def _measure_elsewhere(self, least: int) -> TaskIndex | None:
        """A second try, on another device, for candidates of a task that failed."""
        assert self.network is not None
        most = min(self._again_left(), self.network.batch)
        for task in sorted(self.doubts.keys() - self.stage.keys()):
            candidates, device = self._doubtful(task)
            if most > 0 and len(candidates) >= min(least, self.network.batch):
                self.attempts.update((task, candidate) for candidate in candidates[:most])
                self.avoided[task] = device
                return self._begin(task, Purpose.AGAIN, candidates[:most])
        return None

    def _doubtful(self, task: TaskIndex) -> tuple[list[bytes], UnitName]:
        """Candidates that failed once, all on one device."""
        doubts = {} if self._settled(task) else self.doubts.get(task, {})
        wanted = [
            (candidate, device)
            for candidate, device in doubts.items()
            if device and self.attempts[task, candidate] < record_selection.ATTEMPTS_MAX
            and not self.poison.reason(task, candidate)
        ]  # fmt: skip
        where = wanted[0][1] if wanted else ""
        return [candidate for candidate, device in wanted if device == where], where

    def _hold_finals(self) -> TaskIndex | None:
        """Finals for a task that gets no more trials, the one with the largest share of the latency first."""
        if self.spent < self.trials and any(share.open for share in self.shares.values()):
            return None
        waiting = [
            share for share in self.shares.values() if share.task not in self.stage and self._wants_finals(share)
        ]
        if not waiting:
            return None
        share = max(waiting, key=lambda s: (s.weight * (s.latency_s or 0.0), -s.task))
        self.finals[share.task] += 1
        return self._begin(share.task, Purpose.FINAL, self._finalists(share.task))

    def _wants_finals(self, share: TaskRounds) -> bool:
        held = self.finals.get(share.task, FINALS_MAX)
        return self._may_be_best(share) and held < FINALS_MAX and not self._settled(share.task)

    def _may_be_best(self, share: TaskRounds) -> bool:
        """Whether there are schedules to compare: measured ones or, where nothing may be tried, those of elsewhere."""
        return share.tuned or (not self.trials and share.task in self.hints)

    def _finalists(self, task: TaskIndex) -> Sequence[bytes]:
        known = record_selection.finalists(self.records[task])
        hints = [] if self.trials else [hint for hint in self.hints.get(task, ()) if hint not in known]
        return [*known, *hints][: record_selection.FINALISTS_MAX]

    def _settled(self, task: TaskIndex) -> bool:
        return record_selection.is_final(self.records[task])

    def _begin(self, task: TaskIndex, purpose: Purpose, candidates: Sequence[bytes]) -> TaskIndex:
        self.stage[task], self.purpose[task], self.candidates[task] = STAGES[purpose][0], purpose, tuple(candidates)
        return task

    def _rounds_left(self) -> float | None:
        """Rounds that no task has begun: of the search, of what must be measured again, and first finals."""
        if self.network is None:
            return None
        if self.finishing:
            return 0.0
        batch = self.network.batch
        searching = any(share.open for share in self.shares.values())
        trials = ceil((self.trials - self.spent) / batch) if searching else 0
        again = sum(ceil(len(self._suspects(task)) / batch) for task in self.shaky - self.stage.keys())
        again += sum(bool(self._doubtful(task)[0]) for task in self.doubts.keys() - self.stage.keys())
        finals = sum(
            not held
            and not self._settled(task)
            and (self._may_be_best(self.shares[task]) or task in self.stage or trials > 0)
            for task, held in self.finals.items()
        )
        return trials + min(again, max(0, ceil(self._again_left() / batch))) + finals

    def _nothing_worked(self) -> bool:
        """Steps failed as a whole until every task was given up, and none has a schedule."""
        valid = any(share.tuned for share in self.shares.values())
        return bool(self.last_error) and self.spent < self.trials and not valid

    def _report(self, tasks: Sequence[TaskIndex]) -> JobLoad:
        return JobLoad(
            tasks=tuple(self._task_load(task) for task in tasks),
            complete=self.complete,
            failure=self.failure,
            rounds_left=self._rounds_left(),
        )

    def _task_load(self, task: TaskIndex) -> TaskLoad:
        stage = self.stage.get(task)
        if stage is None:
            share = self.shares.get(task)
            return TaskLoad(task=task, complete=share is not None and not share.open)
        if task in self.running:
            after = self._after(task)
            return TaskLoad(
                task=task,
                stage_done=False,
                resources_now=self._resources(stage),
                resources_next=self._resources(after),
                stage_next=after,
            )
        past = self.durations_s[self.kind(task, stage)]
        share = self.shares.get(task)
        return TaskLoad(
            task=task,
            resources_next=self._resources(stage),
            stage_next=stage,
            expected_s=median(past) if past else None,
            gain=share.gain_s(leading(self.shares.values())) if share is not None else None,
            timeout_s=NETWORK_TIMEOUT_S if stage in NETWORK_STAGES else self._timeout_s(),
            avoid=(self.avoided[task],) if stage == "profile" and task in self.avoided else (),
        )

    def _timeout_s(self) -> float | None:
        """Until it is known how long such steps take; None: whatever the daemon's default is."""
        batch = self.network.batch if self.network is not None else 0
        return min(CANDIDATE_TIMEOUT_S * batch, DAY_S) if batch > BATCH_USUAL else None

    def _resources(self, stage: str) -> tuple[str, ...]:
        """The pools of which a stage needs one unit each; none for no stage."""
        if not stage:
            return ()
        return (f"device:{self.spec.device}",) if stage in ON_DEVICE else (HOST,)
