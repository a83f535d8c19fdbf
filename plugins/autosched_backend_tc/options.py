"""Options of a job, with defaults: the autotuner's flags of Tensor Comprehensions, without their common prefix."""

from typing import Annotated, Literal

from msgspec import Meta

from autosched_tvm.api import options


class Options(options.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the search."""

    mode: Literal["generational", "tc_compat", "random"] = "generational"
    """`tc_compat`: breeding as in the published code. `random`: no breeding, for comparisons."""
    pop_size: Annotated[int, Meta(ge=0, le=4096)] = 0
    """Number of individuals in a generation. 0: 100 in the mode tc_compat, as published, otherwise 12: with 4 elites, a
    generation is a round of 8 candidates, and a hundred trials are a dozen generations."""
    number_elites: Annotated[int, Meta(ge=-1, le=2048)] = -1
    """Number of elites, which stay unchanged; at most half of the population. -1: 10 in the mode tc_compat, as
    published, otherwise 4."""
    crossover_rate: Annotated[int, Meta(ge=0, le=100)] = 80
    """Percent of the children that have three parents instead of one."""
    mutation_rate: Annotated[int, Meta(ge=-1, le=100)] = -1
    """Percent of the decisions that change. -1: 7 in the mode tc_compat, as published, where they are drawn again,
    otherwise 20, since most of them only go to a neighbouring value."""
    generations: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Maximum generations of a task. 0: limited by the budget only; published were 25."""
    restore_number: Annotated[int, Meta(ge=0, le=4096)] = 10
    """Number of the best known candidates in the first generation."""
    min_launch_total_threads: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    """Minimum threads that a candidate must start on a GPU to be tried."""
