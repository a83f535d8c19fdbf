"""Schedule traces as data: a sketch is the instructions, what is searched for are the decisions of its sampling ones.

A candidate is the JSON of `[instructions, decisions]`, after which a search may keep an object of its own. What follows
the instruction EnterPostproc repeats what MetaSchedule's postprocessors did and decides nothing. Loads without TVM.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

POSTPROC = "EnterPostproc"
SAMPLING = ("SamplePerfectTile", "SamplePartitionedTile", "SampleCategorical", "SampleComputeLocation")

Decision = int | tuple[int, ...]
"""Tile factors, the index of a category, or of the loop to compute at."""


@dataclass(frozen=True)
class Sketch:
    """The instructions of a schedule up to its postprocessing, without decisions."""

    instructions: tuple[Any, ...] = field(repr=False)
    places: tuple[int, ...]
    """Where in them something is decided."""
    text: str = field(repr=False)
    """The same for equal instructions."""

    @classmethod
    def of(cls, instructions: Sequence[Any]) -> "Sketch":
        """The sketch of a trace's instructions."""
        kinds = [instruction[0] for instruction in instructions]
        own = instructions[: kinds.index(POSTPROC)] if POSTPROC in kinds else instructions
        places = tuple(i for i, instruction in enumerate(own) if instruction[0] in SAMPLING)
        return cls(tuple(own), places, json.dumps(own, separators=(",", ":")))

    @property
    def decided(self) -> tuple[str, ...]:
        """The decisions of a trace, by place: the instruction and its attributes, whatever it is applied to."""
        return tuple(json.dumps([self.instructions[p][0], self.instructions[p][2]]) for p in self.places)

    def with_decisions(self, decisions: Sequence[Decision | None]) -> list[Any]:
        """A trace in JSON's terms; whatever is None is left to be drawn."""
        pairs = zip(self.places, decisions, strict=True)
        return [list(self.instructions), [[place, decision] for place, decision in pairs if decision is not None]]


@dataclass(frozen=True)
class Trace:
    """A candidate, read."""

    sketch: Sketch
    decisions: tuple[Decision, ...]
    memo: Mapping[str, Any]
    """Notes of its search."""


def read(candidate: bytes) -> Trace | None:
    """A candidate's trace; None if it is not one, or lacks a decision."""
    try:
        instructions, decided, *more = json.loads(candidate)
        sketch = Sketch.of(instructions)
        given = {int(place): _decision(value) for place, value in decided}
        memo = more[0] if more else {}
        return Trace(sketch, tuple(given[place] for place in sketch.places), memo if isinstance(memo, dict) else {})
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def write(trace: Any, memo: Mapping[str, Any] | None = None) -> bytes:
    """The candidate of a trace as TVM gives it, numbers of its own kinds included."""
    return json.dumps([*trace, memo] if memo else list(trace), default=_plain, separators=(",", ":")).encode()


def _decision(value: Any) -> Decision:
    return tuple(int(v) for v in value) if isinstance(value, list) else int(value)


def _plain(number: Any) -> Any:
    return number.value
