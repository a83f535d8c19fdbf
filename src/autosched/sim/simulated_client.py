"""A simulated client: knows the remaining work of its job, and reports it as load-awareness. It runs nothing itself."""

from collections import deque
from collections.abc import Iterable

import msgspec

from autosched.model import NETWORK_TASK, JobLoad, TaskIndex, TaskLoad, UnitName
from autosched.sim.estimate_quality import Expectation
from autosched.sim.scenario import Round, ScenarioJob, Work


def _exact(work: Work) -> float | None:
    return work.duration_s


class SimClient:
    """One job's progress through its plan. A phase is work that may run in parallel."""

    def __init__(self, plan: ScenarioJob, expectation: Expectation = _exact) -> None:
        before, after = ({NETWORK_TASK: [steps]} if steps else {} for steps in (plan.before, plan.after))
        numbered = enumerate(plan.tasks, start=NETWORK_TASK + 1)
        tasks = {index: list(rounds) for index, rounds in numbered if rounds or plan.pool}
        phases: tuple[dict[TaskIndex, list[Round]], ...] = ({**before}, tasks, {**after})
        self._phases = [phase for phase in phases if phase]
        self._place: dict[TaskIndex, tuple[int, int]] = {}  # finished rounds, finished steps of this round
        self._under_way: dict[TaskIndex, None] = {}  # tasks whose round has begun
        self._order = None if plan.order is None else deque(plan.order)
        self._under_way_max = plan.under_way_max
        self._pool = deque(plan.pool)
        self._avoided: dict[TaskIndex, UnitName] = {}  # device of the failed measurement that is repeated
        self._expectation = expectation
        self.rounds_left = sum(len(rounds) for rounds in tasks.values()) + len(plan.pool)
        self.rounds_done = 0
        self._begin_phase()

    def next_work(self, task: TaskIndex) -> Work | None:
        """The next step of a task of this phase; None if it is complete or its next round has not begun."""
        if task not in self._under_way:
            return None
        done, step = self._place[task]
        return self._phases[0][task][done][step]

    def future(self, task: TaskIndex) -> tuple[Work, ...]:
        """The remaining work of a task of this phase, the running step included, with expected times."""
        if task not in self._place:
            return ()
        done, step = self._place[task]
        rounds = self._phases[0][task][done:]
        return tuple(self._as_expected(work) for n, steps in enumerate(rounds) for work in steps[0 if n else step :])

    def load(self) -> JobLoad:
        """The load that a client reports when it connects."""
        return self._report(self._place)

    def resume(self) -> None:
        """Start a new client: only finished rounds left records."""
        self._place = {task: (done, 0) for task, (done, _) in self._place.items()}
        self._avoided.clear()

    def may_retry(self, task: TaskIndex) -> bool:
        """Whether a failed measurement is to be repeated."""
        return task not in self._avoided

    def retry(self, task: TaskIndex, device: UnitName) -> JobLoad:
        """Repeat a failed measurement on another device."""
        self._avoided[task] = device
        return self._report([task])

    def ended(self, task: TaskIndex, *, ok: bool) -> JobLoad:
        """End a step. A task gives up a failed round; the network's own steps are repeated."""
        self._avoided.pop(task, None)
        done, step = self._place[task]
        over = step + 1 == len(self._phases[0][task][done]) if ok else task != NETWORK_TASK
        if not over:
            self._place[task] = (done, step + ok)
            return self._report([task])
        self.rounds_done += ok
        self._place[task] = (done + 1, 0)
        del self._under_way[task]
        begun = self._go_on(task)
        if self._under_way:
            return self._report(dict.fromkeys([task, *begun]))
        finished = list(self._place)
        self._phases.pop(0)
        self._begin_phase()
        return self._report(dict.fromkeys([*finished, *self._place]))

    def _begin_phase(self) -> None:
        self._place = dict.fromkeys(self._phases[0], (0, 0)) if self._phases else {}
        self._go_on(*self._place)

    def _go_on(self, *idle: TaskIndex) -> list[TaskIndex]:
        """Begin rounds of these tasks, or of those whose turn it is. Returns the tasks."""
        if self._order is None or NETWORK_TASK in self._place:
            return [task for task in idle if self._begin(task)]
        begun: list[TaskIndex] = []
        passed: list[TaskIndex] = []
        while self._order and len(self._under_way) < self._under_way_max:
            task = self._order.popleft()
            if task in self._under_way:
                passed.append(task)
            elif self._begin(task):
                begun.append(task)
        self._order.extendleft(reversed(passed))
        return begun

    def _begin(self, task: TaskIndex) -> bool:
        if self._is_complete(task):
            return False
        if self._place[task][0] == len(self._phases[0][task]):
            self._phases[0][task].append(self._pool.popleft())
        self._under_way[task] = None
        self.rounds_left -= task != NETWORK_TASK
        return True

    def _is_complete(self, task: TaskIndex) -> bool:
        if task not in self._place:
            return True
        may_take_more = bool(self._pool) and task != NETWORK_TASK
        return not may_take_more and self._place[task][0] == len(self._phases[0][task])

    def _report(self, tasks: Iterable[TaskIndex]) -> JobLoad:
        loads = tuple(self._task_load(task) for task in tasks)
        return JobLoad(tasks=loads, complete=not self._phases, rounds_left=self.rounds_left)

    def _task_load(self, task: TaskIndex) -> TaskLoad:
        work = self.next_work(task)
        if work is None:
            return TaskLoad(task=task, complete=self._is_complete(task))
        return TaskLoad(
            task=task,
            resources_next=work.pools,
            stage_next=work.stage,
            expected_s=self._expectation(work),
            timeout_s=work.timeout_s,
            avoid=(self._avoided[task],) if task in self._avoided else (),
        )

    def _as_expected(self, work: Work) -> Work:
        expected_s = self._expectation(work)
        return work if expected_s in (None, work.duration_s) else msgspec.structs.replace(work, duration_s=expected_s)
