"""Steps as spans of time, for views, and the busy time of each unit since the daemon started."""

from collections import OrderedDict
from collections.abc import Sequence

from autosched.core.events import ClientAttached, ClientLost, Event, HostLeft, ResourcesDeclared, StepEnded
from autosched.core.state import State
from autosched.model import JobId, Outcome, Step, StepId, UnitName
from autosched.protocol import Span

ENDED_KEPT = 4_096
"""Maximum number of ended steps in memory, for clients that report an end twice. More than there are units, so that the
steps that run when such a report arrives are still known when it is handled."""


class Timeline:
    """The running steps and the latest ended ones; all others are in the database."""

    def __init__(self) -> None:
        self.began_at = 0.0
        self.running: dict[StepId, Span] = {}
        self.ended: OrderedDict[StepId, tuple[JobId, str]] = OrderedDict()
        """Job and outcome of the latest ended steps."""
        self.longest_s = 0.0
        """Longest step since the daemon started, in seconds, at least the step timeout."""
        self._busy_s: dict[UnitName, float] = {}

    def open(self, step: Step, queued_at: float) -> None:
        """Add a step that was started."""
        self.running[step.id] = Span(
            step.id, step.job, step.task, step.stage, step.units, queued_at, step.started_at, None, "running"
        )

    def resume(self, state: State) -> None:
        """Add the running steps of the state, after a replay."""
        self.began_at, self.longest_s = state.now, state.step_timeout_s
        for step in state.steps.values():
            self.open(step, state.jobs[step.job].tasks[step.task].ready_at)

    def ended_by(self, event: Event, state: State, now: float) -> list[Span]:
        """The spans of the running steps that an event ends."""
        match event:
            case StepEnded(step=step, outcome=outcome):
                ended = state.steps.get(step)
                return [self._ended(ended, outcome, now, event.worked_s)] if ended is not None else []
            case ClientLost(job=job):
                return [self._ended(state.steps[step], Outcome.LOST, now) for step in state.jobs[job].steps]
            case ClientAttached(job=job, holds=holds) if holds is not None:
                lost = [step for step in state.jobs[job].steps if step not in holds]
                return [self._ended(state.steps[step], Outcome.LOST, now) for step in lost]
            case ResourcesDeclared(kept=kept):  # the daemon died at some time after its last event
                lost = [step.id for step in state.steps.values() if step.job not in kept]
                return [self._ended(state.steps[step], Outcome.LOST, state.now) for step in lost]
            case HostLeft(host=host):
                return [self._ended(step, Outcome.LOST, now) for step in state.steps_on(host)]
            case _:
                return []

    def _ended(self, step: Step, outcome: Outcome, now: float, worked_s: float | None = None) -> Span:
        known = self.running.get(step.id)
        queued_at = known.queued_at if known is not None else step.started_at
        return Span(
            step.id,
            step.job,
            step.task,
            step.stage,
            step.units,
            queued_at,
            step.started_at,
            now,
            outcome.value,
            worked_s,
        )

    def end(self, spans: Sequence[Span]) -> None:
        """Note ended steps before they are durable; answers to repeated reports wait for that, too."""
        for span in spans:
            self.ended[span.step] = span.job, span.outcome
            if len(self.ended) > ENDED_KEPT:
                self.ended.popitem(last=False)

    def close(self, spans: Sequence[Span]) -> None:
        """Remove steps that have ended."""
        for span in spans:
            if self.running.pop(span.step, None) is not None and span.ended_at is not None:
                held_s = span.ended_at - span.started_at
                self.longest_s = max(self.longest_s, held_s)
                for unit in span.units:
                    self._busy_s[unit] = self._busy_s.get(unit, 0.0) + held_s

    def busy_s(self, unit: UnitName, now: float) -> float:
        """Seconds for which a unit was leased since the daemon started."""
        under_way = sum(now - span.started_at for span in self.running.values() if unit in span.units)
        return self._busy_s.get(unit, 0.0) + under_way

    def busy_ratio(self, unit: UnitName, now: float) -> float:
        """Share of the time since the daemon started in which a unit was leased."""
        return min(1.0, self.busy_s(unit, now) / max(now - self.began_at, 1e-9))
