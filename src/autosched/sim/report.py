"""What a simulation came to, in seconds of virtual time."""

from typing import TYPE_CHECKING

from msgspec import Struct

from autosched.model import JobId, JobState, UnitName
from autosched.protocol import Span
from autosched.text.gantt import busy_s

if TYPE_CHECKING:
    from autosched.sim.world import World


class Report(Struct, frozen=True, kw_only=True):
    """The outcome of one scenario under one policy."""

    makespan_s: float
    """From 0 until the last job ended."""
    completion_s: dict[JobId, float]
    """From its arrival until its end, per job."""
    states: dict[JobId, JobState]
    busy: dict[UnitName, float]
    """Share of the makespan in which a unit was leased: in [0, 1]."""
    spans: tuple[Span, ...]
    """In the order of their start."""
    events: int

    @classmethod
    def of(cls, world: "World") -> "Report":
        """Of a world in which everything has happened."""
        makespan_s = max(world.ended_at.values(), default=0.0)
        spans = tuple(world.spans.values())
        on_unit: dict[UnitName, list[Span]] = {u.name: [] for pool in world.scenario.pools for u in pool.units}
        for span in spans:
            for unit in span.units:
                on_unit[unit].append(span)
        return cls(
            makespan_s=makespan_s,
            completion_s={job: at - world.arrived_at[job] for job, at in world.ended_at.items()},
            states=dict(world.ended),
            busy={unit: busy_s(mine, unit, 0.0, makespan_s) / (makespan_s or 1.0) for unit, mine in on_unit.items()},
            spans=spans,
            events=len(world.history),
        )

    @property
    def mean_completion_s(self) -> float:
        """Mean time from arrival to end."""
        return sum(self.completion_s.values()) / len(self.completion_s) if self.completion_s else 0.0
