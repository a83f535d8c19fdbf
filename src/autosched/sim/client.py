"""A simulated client: it knows what its job still has to do, and says so as load-awareness. It does nothing itself."""

from collections.abc import Iterable

from autosched.model import NETWORK_TASK, JobLoad, TaskIndex, TaskLoad
from autosched.sim.scenario import JobPlan, Round, Work


class SimClient:
    """One job's progress through its plan. A phase is what may go on at the same time."""

    def __init__(self, plan: JobPlan) -> None:
        before, after = ({NETWORK_TASK: (steps,)} if steps else {} for steps in (plan.before, plan.after))
        tasks = {index: rounds for index, rounds in enumerate(plan.tasks, start=NETWORK_TASK + 1) if rounds}
        phases: tuple[dict[TaskIndex, tuple[Round, ...]], ...] = ({**before}, tasks, {**after})
        self._phases = [phase for phase in phases if phase]
        self._place: dict[TaskIndex, tuple[int, int]] = {}  # finished rounds, finished steps of this round
        self.rounds_done = 0
        self._begin_phase()

    def next_work(self, task: TaskIndex) -> Work | None:
        """The next step of a task of this phase; None when it is complete."""
        done, step = self._place.get(task, (0, 0))
        rounds = self._phases[0].get(task, ()) if self._phases else ()
        return rounds[done][step] if done < len(rounds) else None

    def load(self) -> JobLoad:
        """What a client says when it attaches."""
        return self._report(self._place)

    def resume(self) -> None:
        """A new client takes over: only finished rounds left records."""
        self._place = {task: (done, 0) for task, (done, _) in self._place.items()}

    def ended(self, task: TaskIndex, *, ok: bool) -> JobLoad:
        """A step is over. A task gives a failed round up; the network's own steps are tried again."""
        done, step = self._place[task]
        if ok:
            over = step + 1 == len(self._phases[0][task][done])
            self.rounds_done += over
            self._place[task] = (done + 1, 0) if over else (done, step + 1)
        elif task != NETWORK_TASK:
            self._place[task] = (done + 1, 0)
        if any(self.next_work(other) for other in self._place):
            return self._report([task])
        finished = list(self._place)
        self._phases.pop(0)
        self._begin_phase()
        return self._report(dict.fromkeys([*finished, *self._place]))

    def _begin_phase(self) -> None:
        self._place = dict.fromkeys(self._phases[0], (0, 0)) if self._phases else {}

    def _report(self, tasks: Iterable[TaskIndex]) -> JobLoad:
        return JobLoad(tasks=tuple(self._task_load(task) for task in tasks), complete=not self._phases)

    def _task_load(self, task: TaskIndex) -> TaskLoad:
        work = self.next_work(task)
        if work is None:
            return TaskLoad(task=task, complete=True)
        return TaskLoad(
            task=task,
            resources_next=work.pools,
            stage_next=work.stage,
            expected_s=work.duration_s,
            timeout_s=work.timeout_s,
        )
