"""Decides what each task of a job does next. Pure; the client reports the decision to the daemon as load.

Task 0 is the network: import, then baseline (the engine that the user would run otherwise), then, when all trials are
spent, compile and evaluate. Compile and evaluate also run right after the baseline and during the search, when a build
is worth its time (`early`); a job with a latency goal ends when one of these builds meets it. Every other task goes
from round to round (task_state.py). The number of tasks in a round is limited to what keeps all lanes and devices busy:
with more, the choice of the next task would rest on older results.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from statistics import median

import msgspec

from autosched.backend import Baseline, Network, OperatorTimes, Timing
from autosched.client.plan import latency_goal
from autosched.client.plan.allocation import LIGHT_TRIALS, TaskRounds, leading, light, next_share, outdone
from autosched.client.plan.blocked_candidates import BlockedCandidates
from autosched.client.plan.early_builds import BuildMeasurement, EarlyBuilds, in_tasks_s, untuned
from autosched.client.plan.rounds import budget, first_count, pasts, searched, spent
from autosched.client.plan.task_state import ROUND_STAGES, Round, TaskState
from autosched.model import (
    DEVICE_POOL,
    HOST_POOL,
    NETWORK_TASK,
    JobFailure,
    JobLoad,
    JobSpec,
    Purpose,
    Record,
    TaskIndex,
    TaskLoad,
)
from autosched.network_status import NOTHING_RECALLED, GoalReached, Recalled
from autosched.records.network_estimate import network_s
from autosched.stages import BASELINE, COMPILE, EVALUATE, IMPORT, PROFILE, stage_of

AGAIN_SHARE = 0.25
"""Maximum re-measurements as a share of the budget, at least one batch. Bounds the cost of a noisy device."""
RETRIED_LEAST = 4
"""Minimum candidates of a round on a second device, while another round can begin."""
ELSEWHERE_MAX = 64
"""Maximum extra tasks in a round, for units of other hosts: the job may never get these units."""
NETWORK_TIMEOUT_S = 1800.0
"""Seconds of the network's stages: importing and compiling a large model, or timing a slow one, takes minutes."""
CANDIDATE_TIMEOUT_S = 20.0
"""Seconds of a step's time limit for each candidate. Backends allow a candidate this time to build and to run."""
BATCH_USUAL = 30
"""Maximum candidates of a step for which the daemon's own time limit suffices."""
DAY_S = 86_400.0
"""Maximum time limit, in seconds, that a client may ask for."""


@dataclass
class JobPlan:
    """State of a job: what was done, and what comes next."""

    spec: JobSpec
    lanes: int
    devices: int
    elsewhere: int = 0
    """Lanes and devices of other hosts that its tasks could use."""
    network: Network | None = None
    recalled: Recalled = NOTHING_RECALLED
    """Known schedules that the job took over."""
    tasks: dict[TaskIndex, TaskState] = field(default_factory=dict)
    """The tasks of the network, once it is imported."""
    network_round: Round | None = field(default_factory=lambda: Round(Purpose.NETWORK, IMPORT))
    """The network's own round, with its stage."""
    trials: int = 0
    """The whole budget."""
    spent: int = 0
    """Trials that were measured or belong to a running round."""
    places: dict[int, tuple[TaskState, int]] = field(default_factory=dict)
    """Position of each of the job's own records, by number."""
    codes: dict[str, int] = field(default_factory=dict)
    """Number of a record with a latency of each object code, by the digest of the code."""
    blocked: BlockedCandidates = field(default_factory=BlockedCandidates)
    durations_s: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=9)))
    """Durations of the last steps of each kind, in seconds."""
    last_error: str = ""
    """Stage and message of the last step that failed as a whole."""
    failure: JobFailure | None = None
    complete: bool = False
    early: EarlyBuilds = field(default_factory=EarlyBuilds)
    """Builds of the network during the search."""
    finishing: bool = False
    """Whether the search has met its goal: no more rounds begin, and running ones end with their step."""
    why_finished: str = ""
    """Why the search ended before all trials were made, in words."""
    changed: dict[TaskIndex, None] = field(default_factory=dict)
    """Tasks whose load has changed since it was taken, in that order."""
    unreported: Counter[TaskIndex] = field(default_factory=Counter)
    """Number of steps of each task whose end is not reported yet."""

    def round(self, task: TaskIndex) -> Round | None:
        """The round of a task or of the network; None if it is in no round."""
        if task == NETWORK_TASK:
            return self.network_round
        state = self.tasks.get(task)
        return None if state is None else state.round

    def current(self, task: TaskIndex) -> Round:
        """The round of a task that must be in one."""
        current = self.round(task)
        assert current is not None, f"task {task} is in no round"
        return current

    @property
    def _searches(self) -> Iterator[TaskRounds]:
        return (state.search for state in self.tasks.values())

    @property
    def _idle(self) -> list[TaskState]:
        """The tasks that are in no round."""
        return [state for state in self.tasks.values() if state.round is None]

    @property
    def _under_way(self) -> int:
        """Number of tasks in a round, the network counted as one."""
        return len(self.tasks) - len(self._idle) + (self.network_round is not None)

    def started(self, task: TaskIndex, stage: str) -> Round | None:
        """Note that a step of the task runs; the next call for the task is the end of this step, or of one that shares
        its work.

        Returns the round; None if the work that the step was to share is done.
        """
        self.unreported[task] += 1
        current = self.round(task)
        if current is None or current.stage != stage:
            return None
        current.steps += 1
        current.shared |= current.steps > 1
        if current is self.network_round and current.stage == COMPILE and self.early.under_way:
            self.early.begin(self.tasks_s)  # it is compiled from the present state
        return current

    def _goes_on(self, task: TaskIndex) -> bool:
        """End one of the steps that share a stage; returns whether others still run."""
        current = self.current(task)
        if current.steps < 2:
            return False
        current.steps -= 1
        return True

    # What happened ------------------------------------------------------------------------------------------

    def imported(
        self,
        network: Network,
        records: Sequence[Record],
        borrowed: int = 0,
        finals: Collection[TaskIndex] = (),
        *,
        recalled: Recalled = NOTHING_RECALLED,
        compares: bool = False,
        hints: Mapping[TaskIndex, Sequence[bytes]] | None = None,
    ) -> None:
        """Set the imported network, the known schedules that the job takes over, and its records; the first `borrowed`
        records cost this job no trials.

        `finals`: tasks whose candidates can be compared with each other and with the default. `compares`: whether the
        backend can measure a baseline. `hints`: first candidates of tasks.
        """
        self.network, self.recalled = network, recalled
        self.trials = budget(network, self.spec.trials, recalled)
        self.spent = spent(records[borrowed:], self.trials)
        taken = set(recalled.taken)
        for info in network.tasks:
            search = TaskRounds(info.task, info.weight, info.flops, groups=info.groups)
            state = self.tasks[info.task] = TaskState(search)
            state.finals = 0 if info.task in finals and info.task not in taken else None
            state.rivals = () if self.trials or hints is None else hints.get(info.task, ())
        for record in records[:borrowed]:
            if record.task in self.tasks:
                self.tasks[record.task].records.append(record)
        for record in records[borrowed:]:
            self.recorded(record)
        self._replay(borrowed, records)
        for task in taken:
            self.tasks[task].search.exhausted = True
        self.network_round = None
        known = self.early.comparison  # of an earlier client
        self.early.builds = int(known is not None)
        if known is not None and known.module_s is not None and (self.spec.until_faster or self._goal_is_met):
            self._finish_search("a build met the goal")
        elif known is None and compares and self._searching and not network.tasks_only:
            self._begin_network(BASELINE)
        self._go_on()

    def recorded(self, record: Record) -> None:
        """Add a record; one of a task that the network does not have is ignored."""
        if (state := self.tasks.get(record.task)) is None:
            return
        self.places[record.number] = state, len(state.records)
        state.recorded(record)
        if record.code and record.latency_s and self.timing(record.code) is None:
            self.codes[record.code] = record.number

    def timing(self, code: str) -> Record | None:
        """A record of this object code with an undisturbed latency."""
        if (number := self.codes.get(code)) is None:
            return None
        state, index = self.places[number]
        record = state.records[index]
        return None if record.disturbed else record

    def tagged(self, numbers: Iterable[int], reason: str) -> list[Record]:
        """Tag records as disturbed; each task measures its own again when its next round begins."""
        places = [self.places[number] for number in numbers if number in self.places]
        changed = (state.tagged(index, reason) for state, index in places)
        return [record for record in changed if record is not None]

    def _replay(self, borrowed: int, records: Sequence[Record]) -> None:
        """Reconstruct rounds from earlier records; an interrupted one is continued."""
        assert self.network is not None
        for task, found in pasts(self.network, self.spec.trials, self.recalled, records, borrowed).items():
            for whole in found.whole:
                self.tasks[task].count_round(whole)
            if found.half:
                self.tasks[task].half = found

    def selected(self, task: TaskIndex, count: int) -> None:
        """Note that select returned `count` candidates; 0 means that the task's space is exhausted."""
        self._pay(task, count)
        if count == 0:
            self.tasks[task].give_up_half()
            self.tasks[task].search.exhausted = True
            self._round_over(task)
        else:
            self._advance(task)

    def _pay(self, task: TaskIndex, trials: int) -> None:
        """Charge a round with its trials; trials that it does not need return to the budget."""
        current = self.current(task)
        self.spent += trials - current.trials
        current.trials = trials

    def advanced(self, task: TaskIndex) -> None:
        """Note that build or profile is done, or a share of it."""
        if not self._goes_on(task):
            self._advance(task)

    def updated(self, task: TaskIndex, best_s: float | None) -> None:
        """End the round; `best_s` is its best latency in seconds, None if nothing was valid."""
        self.tasks[task].learned(best_s)
        self.early.rounds += self.current(task).is_search
        self._round_over(task)

    def failed(self, task: TaskIndex, measured: int, error: str) -> None:
        """Note that a step of the task's round failed as a whole after `measured` trials; trials that were not measured
        return to the budget.

        The search still learns what was measured before its profile step failed.
        """
        current, state = self.current(task), self.tasks[task]
        self.last_error = error
        if self._goes_on(task):  # the other steps measure the rest
            return
        if current.is_search:
            self._pay(task, measured)
            if measured and current.stage == PROFILE:
                return self._advance(task)
            state.give_up_half()
            state.search.strikes += 1
        self._round_over(task)

    def lost(self, task: TaskIndex) -> None:
        """Repeat a stage whose helper or device was lost, without the candidates that were measured."""
        if self._goes_on(task):
            return
        current = self.current(task)
        if current.stage == PROFILE:
            done = {one.candidate for one in current.measured[current.earlier :]}
            current.candidates = [one for one in current.candidates if one not in done]
            current.built = [one for one in current.built if one.candidate not in done]
        current.steps, current.shared = 0, False
        if self.finishing and task != NETWORK_TASK:
            self._round_over(task)

    def baseline(self, found: Baseline | None) -> None:
        """Set the baseline; None if there is none."""
        self.early.measured_baseline(found)
        self._network_over()

    def compiled(self) -> None:
        """Note that the network is compiled."""
        self._begin_network(EVALUATE)

    def evaluated_early(
        self, build: BuildMeasurement, operators: OperatorTimes | None = None, *, kept: bool, after_s: float
    ) -> None:
        """Note that an early build was measured. `kept`: whether the user got it, `after_s` seconds after the start of
        the job's client.

        `operators`: the time of each operator in it.
        """
        assert self.network is not None
        inside, untuned_s = None, {}
        if operators is not None:
            if (inside_s := in_tasks_s(self.network.tasks, operators)) > 0.0:
                inside = inside_s, operators.whole_s
            untuned_s = untuned(self.network.tasks, operators)
            for task, seconds in untuned_s.items():
                self.tasks[task].search.untuned_s = seconds
        self.early.measured(build, inside, untuned_s, kept=kept, after_s=after_s)
        if kept and not build.disturbed and build.timing is not None and (goal_s := self.goal_s) is not None:
            self.early.told(latency_goal.result(goal_s, build.timing, ""))
        if kept and (self.spec.until_faster or self._goal_is_met):
            self._finish_search("a build met the goal")
        self._network_over()

    @property
    def goal_s(self) -> float | None:
        """Latency in seconds that ends the search; None if there is none, or none yet."""
        return latency_goal.goal_s(self.spec, self.early.measurements.builds)

    @property
    def _goal_is_met(self) -> bool:
        goal = self.early.measurements.goal
        return goal is not None and goal.reached is GoalReached.MET

    def out_of_time(self) -> None:
        """End the search, because the network must be compiled before the job's deadline."""
        if self._searching:
            self._finish_search("the deadline is near")

    def _finish_search(self, why: str) -> None:
        if not self.finishing:
            self.finishing, self.why_finished = True, why

    @property
    def optional(self) -> bool:
        """Whether the job goes on if the network's running step fails."""
        return self.early.under_way or self._network_is_in(BASELINE)

    def gave_up_early(self) -> None:
        """Note that an optional step of the network has failed."""
        self.early.failed()
        self._network_over()

    def _network_over(self) -> None:
        self.network_round = None
        self._go_on()

    @property
    def tasks_s(self) -> float | None:
        """Latency of the network as the sum over its tasks; None while a necessary one has none."""
        assert self.network is not None
        known = {search.task: search.latency_s for search in self._searches}
        return network_s(self.network.tasks, {task: own_s for task, own_s in known.items() if own_s is not None})

    @property
    def _searching(self) -> bool:
        """Whether more trials are to come."""
        return not self.finishing and self.spent < self.trials and self._any_open

    @property
    def _any_open(self) -> bool:
        return any(search.open for search in self._searches)

    def _begin_network(self, stage: str) -> None:
        self.network_round = Round(Purpose.NETWORK, stage)
        self.changed[NETWORK_TASK] = None

    def _network_is_in(self, *stages: str) -> bool:
        return self.network_round is not None and self.network_round.stage in stages

    def evaluated(self, build: BuildMeasurement | None = None, result: Timing | None = None) -> None:
        """Complete the job: the daemon has its results. `build`: the last build, if it was measured.

        `result`: latency of the user's module, unless it was kept before.
        """
        goal_s = self.goal_s
        if build is not None:
            self.early.ended(build, self.tasks_s, None if result is None else result.median_s)
        if goal_s is not None:
            self._judge_goal(goal_s, result)
        self.network_round = None
        self.complete = True

    def _judge_goal(self, goal_s: float, result: Timing | None) -> None:
        """Judge at the end whether the goal is met. `result`: of the last build; None if the user keeps an earlier
        one."""
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

    def broken(self, failure: JobFailure) -> None:
        """End the job with a failure."""
        self.failure = failure
        if self.network_round is not None:
            self.network_round.steps = 0

    # What comes next ----------------------------------------------------------------------------------------

    def load(self) -> JobLoad:
        """The load of all tasks, for a daemon that asks."""
        return self._report(sorted({NETWORK_TASK, *self.tasks}))

    def take_changes(self, task: TaskIndex) -> JobLoad:
        """The load for the end of a step of this task, made when it is sent: what has changed since the last one.

        A task is reported with the end of its own step, so that the daemon knows no next stage of a step that it
        believes to run.
        """
        self.unreported[task] = max(0, self.unreported[task] - 1)
        taken = [one for one in self.changed if one != task and not self.unreported[one]]
        for one in (task, *taken):
            self.changed.pop(one, None)
        return self._report([task, *taken])

    def _advance(self, task: TaskIndex) -> None:
        current = self.current(task)
        if not (stage := current.stage_after) or self.finishing:
            return self._round_over(task)
        current.stage, current.steps, current.shared = stage, 0, False
        self.changed[task] = None

    def _round_over(self, task: TaskIndex) -> None:
        self.tasks[task].round = None
        self.changed[task] = None
        self._go_on()

    def _go_on(self) -> None:
        """Give rounds to tasks; when the budget is spent and no round runs, compile, or end a job without a network."""
        assert self.network is not None
        for lost in outdone(self._searches):
            lost.exhausted = True
            self.tasks[lost.task].finals = None
            if self.tasks[lost.task].round is None:
                self.changed[lost.task] = None
        self._build_early()
        under_way_max = self.lanes + self.devices + 1 + (self.network_round is not None)
        under_way_max += min(self.elsewhere, ELSEWHERE_MAX)
        if self._network_is_in(BASELINE, COMPILE):
            under_way_max = self.lanes + 1  # otherwise the network would wait for its lane behind many candidates
        elsewhere, rest = partial(self._measure_elsewhere, RETRIED_LEAST), partial(self._measure_elsewhere, 1)
        beginnings = (self._finish, self._measure_again, elsewhere, self._try, rest, self._hold_finals)
        for begin in () if self.finishing or self._waits_for_known else beginnings:
            while self._under_way < under_way_max and (task := begin()) is not None:
                self.changed[task] = None
        if self._under_way:
            return
        if self._nothing_worked():
            self.failure = JobFailure(
                "job_failed", f"no task could be tuned; the last step that failed: {self.last_error}"
            )
        elif self.network.tasks_only:
            self.complete = True
        else:
            self._begin_network(COMPILE)

    @property
    def _waits_for_known(self) -> bool:
        """Whether a build of the known schedules comes first, because it may meet the goal. No search runs
        meanwhile."""
        first = not self.early.measurements.builds and not self.early.failures
        return self.spec.names_latency and self.network_round is not None and first and self._searching

    def _build_early(self) -> None:
        """Begin a build of the network during the search if it is worth its time."""
        assert self.network is not None
        if (
            self.network_round is None
            and not self.network.tasks_only
            and self._searching
            and self.early.wants(tasks_s := self.tasks_s, self.goal_s)
        ):
            self.early.begin(tasks_s)
            self._begin_network(COMPILE)

    def _try(self) -> TaskIndex | None:
        """Begin a round of the search for the task with the largest gain."""
        assert self.network is not None
        busy = {task for task, state in self.tasks.items() if state.round is not None}
        search = next_share(self._searches, leading(self._searches), busy)
        if search is None or self.spent >= self.trials:
            return None
        count = min(self.network.batch, self.trials - self.spent)
        if not search.best_s:  # half of the budget is kept for tasks whose first rounds show a gain
            count = min(count, first_count(self.trials, searched(self.network, self.recalled)))
            if search.task in light(self._searches):
                count = min(count, LIGHT_TRIALS)
        return self._search(self.tasks[search.task], count)

    def _search(self, state: TaskState, count: int) -> TaskIndex:
        state.round = Round(Purpose.TRIAL, ROUND_STAGES[Purpose.TRIAL][0], trials=count)
        self.spent += count
        return state.task

    def _finish(self) -> TaskIndex | None:
        """Continue a round that an earlier client had begun."""
        left = self.trials - self.spent
        for state in self._idle:
            if state.half is not None and state.search.open and left > 0:
                return self._search(state, min(state.half.missing, left))
        return None

    def _measure_again(self) -> TaskIndex | None:
        """Begin a round that measures disturbed candidates of a task again."""
        assert self.network is not None
        most = max(0, min(self._again_left(), self.network.batch))
        for state in self._idle:
            if not state.shaky:
                continue
            if suspects := state.suspects()[:most]:
                state.begin(Purpose.AGAIN, suspects)
                return state.task
            state.shaky = False
        return None

    def _again_left(self) -> int:
        assert self.network is not None
        whole = max(self.network.batch, int(AGAIN_SHARE * self.trials))
        return whole - sum(state.attempts.total() for state in self.tasks.values())

    def _measure_elsewhere(self, least: int) -> TaskIndex | None:
        """Begin a round that tries failed candidates of a task again, on another device."""
        assert self.network is not None
        most = min(self._again_left(), self.network.batch)
        for state in self._idle if most > 0 else ():
            candidates, device = state.doubtful(self.blocked)
            if len(candidates) >= min(least, self.network.batch):
                state.begin(Purpose.AGAIN, candidates[:most], avoid=device)
                return state.task
        return None

    def _hold_finals(self) -> TaskIndex | None:
        """Begin finals of a task that gets no more trials, the one with the largest share of the latency first."""
        if self.spent < self.trials and self._any_open:
            return None
        waiting = [state for state in self._idle if state.wants_finals]
        if not waiting:
            return None
        state = max(waiting, key=lambda one: (one.search.weight * (one.search.latency_s or 0.0), -one.task))
        state.begin(Purpose.FINAL, state.finalists())
        return state.task

    def _rounds_left(self) -> float | None:
        """Number of rounds yet to begin: of the search, of re-measurements, and first finals."""
        if self.network is None:
            return None
        if self.finishing:
            return 0.0
        batch = self.network.batch
        trials = ceil((self.trials - self.spent) / batch) if self._any_open else 0
        again = sum(ceil(len(state.suspects()) / batch) for state in self._idle if state.shaky)
        again += sum(bool(state.doubtful(self.blocked)[0]) for state in self._idle)
        finals = sum(
            state.finals == 0 and not state.is_final and (state.may_be_best or state.round is not None or trials > 0)
            for state in self.tasks.values()
        )
        return trials + min(again, max(0, ceil(self._again_left() / batch))) + finals

    def _nothing_worked(self) -> bool:
        """Whether all tasks were given up after failed steps, and none has a schedule."""
        valid = any(search.tuned for search in self._searches)
        return bool(self.last_error) and self.spent < self.trials and not valid

    def _report(self, tasks: Iterable[TaskIndex]) -> JobLoad:
        return JobLoad(
            tasks=tuple(self._task_load(task) for task in tasks),
            complete=self.complete,
            failure=self.failure,
            rounds_left=self._rounds_left(),
        )

    def _task_load(self, task: TaskIndex) -> TaskLoad:
        current, state = self.round(task), self.tasks.get(task)
        if current is None:
            return TaskLoad(task=task, complete=state is not None and not state.search.open)
        stage, after = current.stage, current.stage_after
        if current.steps:
            return TaskLoad(
                task=task,
                stage_done=False,
                resources_now=self._resources(stage),
                resources_next=self._resources(after),
                stage_next=after,
            )
        past = self.durations_s[current.kind]
        return TaskLoad(
            task=task,
            resources_next=self._resources(stage),
            stage_next=stage,
            expected_s=median(past) if past else None,
            gain=state.search.gain_s(leading(self._searches)) if state is not None else None,
            timeout_s=NETWORK_TIMEOUT_S if stage_of(stage).of_network else self._timeout_s(),
            avoid=(current.avoid,) if stage == PROFILE and current.avoid else (),
        )

    def _timeout_s(self) -> float | None:
        """Time limit of a step in seconds, until durations are known; None: the daemon's default."""
        batch = self.network.batch if self.network is not None else 0
        return min(CANDIDATE_TIMEOUT_S * batch, DAY_S) if batch > BATCH_USUAL else None

    def _resources(self, stage: str) -> tuple[str, ...]:
        """The pools of which a stage needs one unit each; empty without a stage."""
        if not stage:
            return ()
        return (DEVICE_POOL + self.spec.device,) if stage_of(stage).on_device else (HOST_POOL,)
