"""What a job may set, with defaults. Every name is a key of `JobSpec.options`."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from autosched.errors import RequestError


class Options(Struct, frozen=True, forbid_unknown_fields=True):
    """How candidates are searched, built and measured."""

    batch: Annotated[int, Meta(ge=1, le=256)] = 8
    """Candidates per round of a task."""
    trials_per_task: Annotated[int, Meta(ge=1, le=100_000)] = 14
    """Default budget, times the number of tasks, when the job names no trials."""
    population_size: Annotated[int, Meta(ge=4, le=4096)] = 32
    """Schedules per generation."""
    init_min_unmeasured: Annotated[int, Meta(ge=1, le=4096)] = 8
    """New random schedules in the first generation, at least."""
    genetic_num_iters: Annotated[int, Meta(ge=0, le=64)] = 2
    """Generations per round."""
    eps_greedy: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Share of each round that is chosen at random."""
    num_warmup_samples: Annotated[int, Meta(ge=0, le=1_000_000)] = 16
    """Measurements (of all tasks together) before the cost model is believed."""
    repeat: Annotated[int, Meta(ge=1, le=100)] = 3
    """Samples per measurement."""
    min_repeat_ms: Annotated[float, Meta(ge=0, le=10_000)] = 20.0
    """A sample runs at least this long."""
    build_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    """Processor time per candidate."""
    run_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    """Per candidate."""
    recycle_after: Annotated[int, Meta(ge=1, le=1_000_000)] = 200
    """Candidates after which a worker process is replaced, since TVM's compiler leaks."""


def read(given: Mapping[str, bool | int | float | str]) -> Options:
    """The options of a job. Raises RequestError for an unknown name or a value that does not fit."""
    known = Options.__struct_fields__
    for name in given:
        if name not in known:
            raise RequestError(f"backend ansor has no option {name!r}; it has: {', '.join(known)}")
    try:
        return msgspec.convert(dict(given), Options)
    except msgspec.ValidationError as error:
        raise RequestError(f"backend ansor, options: {error}") from error
