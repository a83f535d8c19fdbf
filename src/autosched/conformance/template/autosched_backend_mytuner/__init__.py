"""Tunes a toy: the addition of numbers in blocks, by block size and method. Replace it by your own operator."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from autosched.errors import ModelRejected
from autosched.simple import CandidateFailed, Choice, Job, Run, SimpleBackend, Space


class Options(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a job: autosched tune MODEL --backend mytuner --option repeat=9."""

    repeat: Annotated[int, Meta(ge=1, le=1_000)] = 5
    """Number of timed calls of a measurement."""


class MytunerBackend(SimpleBackend):
    """The entry point."""

    api = (2, 0)
    Options = Options
    example = Path(__file__).parent / "example.json"

    def spaces(self, job: Job) -> Sequence[Space]:
        """A model is a JSON object: the name of each task, and the number of numbers that it adds."""
        try:
            sizes = msgspec.json.decode(job.model.read_bytes(), type=dict[str, Annotated[int, Meta(ge=1)]])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ModelRejected(f"{job.model.name} is no JSON object of sizes: {error}") from None
        return [
            Space(
                name=name,
                knobs={"block": (1, 4, 16, 64, 256, 1024, 4096), "way": ("loop", "sum")},
                default={"block": 1, "way": "loop"},
                flops=float(size),
                shape=f"{size} numbers",
            )
            for name, size in sizes.items()
        ]

    def build(self, job: Job, space: Space, choice: Choice, folder: Path) -> None:
        """A real backend would call a compiler. This one refuses large blocks with a loop."""
        if choice["way"] == "loop" and int(choice["block"]) > 1024:
            raise CandidateFailed("a loop over so large a block is not supported")
        (folder / "numbers.json").write_text(json.dumps(list(range(int(space.flops)))))

    def measure(self, job: Job, space: Space, choice: Choice, folder: Path) -> Run:
        """Call it `repeat` times. This process is already pinned to the lease's core."""
        assert isinstance(job.options, Options)
        numbers = json.loads((folder / "numbers.json").read_text())
        latency_s = []
        for _ in range(job.options.repeat):
            began_at = time.perf_counter()
            total = add(numbers, int(choice["block"]), choice["way"] == "sum")
            latency_s.append(time.perf_counter() - began_at)
        return Run(tuple(latency_s), (float(total),))


def add(numbers: Sequence[int], block: int, quick: bool) -> int:
    """Add the numbers in blocks."""
    total = 0
    for start in range(0, len(numbers), block):
        if quick:
            total += sum(numbers[start : start + block])
        else:
            for number in numbers[start : start + block]:
                total += number
    return total
