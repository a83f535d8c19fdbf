"""Options of a job, with defaults. Every name is a key of `JobSpec.options`."""

from typing import Annotated

from msgspec import Meta

from autosched_tvm.api import options


class Options(options.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the search."""

    population_size: Annotated[int, Meta(ge=4, le=4096)] = 32
    """Number of schedules per generation."""
    init_min_unmeasured: Annotated[int, Meta(ge=1, le=4096)] = 8
    """Minimum number of new random schedules in the first generation."""
    init_measured_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.2
    """Share of the first generation that is the best measured so far, at least one."""
    genetic_mutate_prob: Annotated[float, Meta(ge=0, le=1)] = 0.85
    """Probability that a schedule mutates."""
    genetic_num_iters: Annotated[int, Meta(ge=0, le=64)] = 2
    """Number of generations per round."""
    eps_greedy: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Share of each round that is chosen at random."""
    num_warmup_samples: Annotated[int, Meta(ge=0, le=1_000_000)] = 16
    """Number of measurements (of all tasks together) before the cost model is used."""
