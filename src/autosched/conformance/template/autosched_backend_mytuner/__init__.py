"""Tunes a toy: adding up numbers, in blocks of which size and in which way. Replace it by what you want to tune."""

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
    """Timed calls in a measurement."""


class MytunerBackend(SimpleBackend):
    """The entry point."""

    api = (1, 2)
    Options = Options
    example = Path(__file__).parent / "example.json"

    def spaces(self, job: Job) -> Sequence[Space]:
        """A model is a JSON object: the name of each task, and how many numbers it adds."""
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
        """A compiler would be called here. This one refuses to make large blocks with a loop."""
        if choice["way"] == "loop" and int(choice["block"]) > 1024:
            raise CandidateFailed("a loop over so large a block is not supported")
        (folder / "numbers.json").write_text(json.dumps(list(range(int(space.flops)))))

    def measure(self, job: Job, space: Space, choice: Choice, folder: Path) -> Run:
        """Call it `repeat` times on the lease's core, where this process runs already."""
        assert isinstance(job.options, Options)
        numbers = json.loads((folder / "numbers.json").read_text())
        latency_s = []
        for _ in range(job.options.repeat):
            began_at = time.perf_counter()
            total = add(numbers, int(choice["block"]), choice["way"] == "sum")
            latency_s.append(time.perf_counter() - began_at)
        return Run(tuple(latency_s), (float(total),))


def add(numbers: Sequence[int], block: int, quick: bool) -> int:
    """The tasks of a model."""
    total = 0
    for start in range(0, len(numbers), block):
        if quick:
            total += sum(numbers[start : start + block])
        else:
            for number in numbers[start : start + block]:
                total += number
    return total
