"""Result of a simulation, in seconds of virtual time."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from autosched.model import JobId, JobState, UnitName
from autosched.protocol import Span
from autosched.text.gantt import busy_s


class SimulationResult(Struct, frozen=True, kw_only=True):
    """The outcome of one scenario under one policy."""

    makespan_s: float
    """Seconds from 0 until the last job ended."""
    completion_s: dict[JobId, float]
    """Seconds from arrival to end, per job."""
    states: dict[JobId, JobState]
    busy: dict[UnitName, float]
    """Share of the makespan in which a unit was leased: in [0, 1]."""
    spans: tuple[Span, ...]
    """In the order of their start."""
    events: int

    @classmethod
    def of(
        cls,
        units: Iterable[UnitName],
        spans: tuple[Span, ...],
        arrived_at: Mapping[JobId, float],
        ended: Mapping[JobId, tuple[float, JobState]],
        events: int,
    ) -> "SimulationResult":
        """Summarise a finished world: `ended` has the time and outcome of each step."""
        makespan_s = max((at for at, _ in ended.values()), default=0.0)
        on_unit: dict[UnitName, list[Span]] = {unit: [] for unit in units}
        for span in spans:
            for unit in span.units:
                on_unit[unit].append(span)
        return cls(
            makespan_s=makespan_s,
            completion_s={job: at - arrived_at[job] for job, (at, _) in ended.items()},
            states={job: state for job, (_, state) in ended.items()},
            busy={unit: busy_s(mine, unit, 0.0, makespan_s) / (makespan_s or 1.0) for unit, mine in on_unit.items()},
            spans=spans,
            events=events,
        )

    @property
    def mean_completion_s(self) -> float:
        """Mean time from arrival to end."""
        return sum(self.completion_s.values()) / len(self.completion_s) if self.completion_s else 0.0
