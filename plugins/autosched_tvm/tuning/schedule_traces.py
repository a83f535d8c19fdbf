"""Schedule traces as data: a sketch is a list of instructions, and a search chooses the decisions of its sampling ones.

A candidate is the JSON of `[instructions, decisions]`, optionally followed by an object of the search. Instructions
after EnterPostproc repeat the actions of MetaSchedule's postprocessors and decide nothing. Loads without TVM.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autosched_tvm.tvm_types import Expr

POSTPROC = "EnterPostproc"
SAMPLING = ("SamplePerfectTile", "SamplePartitionedTile", "SampleCategorical", "SampleComputeLocation")

Decision = int | tuple[int, ...]
"""A decision: tile factors, the index of a category, or the loop at which to compute."""


@dataclass(frozen=True)
class Sketch:
    """The instructions of a schedule up to its postprocessing, without decisions."""

    instructions: tuple[Any, ...] = field(repr=False)
    places: tuple[int, ...]
    """Positions of the instructions with a decision."""
    text: str = field(repr=False)
    """Key that is the same for equal instructions."""

    @classmethod
    def of(cls, instructions: Sequence[Any]) -> "Sketch":
        """Returns the sketch of a trace's instructions."""
        kinds = [instruction[0] for instruction in instructions]
        own = instructions[: kinds.index(POSTPROC)] if POSTPROC in kinds else instructions
        places = tuple(i for i, instruction in enumerate(own) if instruction[0] in SAMPLING)
        return cls(tuple(own), places, json.dumps(own, separators=(",", ":")))

    @property
    def decided(self) -> tuple[str, ...]:
        """Returns the instruction and its attributes for each decision, without the operands."""
        return tuple(json.dumps([self.instructions[p][0], self.instructions[p][2]]) for p in self.places)

    def with_decisions(self, decisions: Sequence[Decision | None]) -> list[Any]:
        """Returns a trace as JSON values; a decision of None is drawn later."""
        pairs = zip(self.places, decisions, strict=True)
        return [list(self.instructions), [[place, decision] for place, decision in pairs if decision is not None]]


@dataclass(frozen=True)
class Trace:
    """A candidate, parsed."""

    sketch: Sketch
    decisions: tuple[Decision, ...]
    memo: Mapping[str, Any]
    """Notes of its search."""


def read(candidate: bytes) -> Trace | None:
    """Returns a candidate's trace; None if the candidate is no trace, or lacks a decision."""
    try:
        instructions, decided, *more = json.loads(candidate)
        sketch = Sketch.of(instructions)
        given = {int(place): _decision(value) for place, value in decided}
        memo = more[0] if more else {}
        return Trace(sketch, tuple(given[place] for place in sketch.places), memo if isinstance(memo, dict) else {})
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def write(trace: Any, memo: Mapping[str, Any] | None = None) -> bytes:
    """Returns the candidate of a TVM trace, with TVM's number types converted."""
    return json.dumps([*trace, memo] if memo else list(trace), default=_plain, separators=(",", ":")).encode()


def options(instruction: Any, decision: Decision) -> list[Decision] | None:
    """Returns all decisions of a sampling instruction, of which `decision` is one; None for kinds without a list."""
    kind, _, attributes = instruction[:3]
    if kind == "SampleCategorical":
        return list(range(len(attributes[0])))
    if kind == "SamplePerfectTile" and isinstance(decision, tuple) and len(decision) == 2:
        extent = math.prod(decision)
        return [(extent // inner, inner) for inner in range(1, int(attributes[1]) + 1) if extent % inner == 0]
    return None


def _decision(value: int | list[int]) -> Decision:
    return tuple(int(v) for v in value) if isinstance(value, list) else int(value)


def _plain(number: Expr) -> int:
    return number.value
