"""Options of a job, with defaults: the thesis' parameters, and those of AutoTVM's tuners by their names there."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from autosched.errors import RequestError
from autosched_tvm.api import LayoutOption, options


class Options(options.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How configurations of the templates are searched for.

    The thesis' number of trials is the job's `trials`; its batch size and profiling timeout are `batch` and
    `run_timeout_s`.
    """

    layout: LayoutOption = LayoutOption.NCHWC
    """Memory layout of convolutions; blocked ones are as fast as the core can multiply."""
    winograd: bool = True
    fallback: str = "ansor"
    """The backend of operators without a template; empty: they stay untuned."""
    tuner: Literal["xgb", "ga", "random", "grid"] = "xgb"
    """`xgb` learns a cost model, `ga` breeds, `grid` goes by the numbers of the configurations."""
    knobs: str = ""
    """Values to restrict knobs to, as a JSON object: `{"tile_w": [7, 14]}`. Knobs not named keep theirs."""
    enlarge: str = ""
    """Values to add to knobs, likewise; among them those of a knob that is no choice otherwise."""
    index_from: Annotated[int, Meta(ge=0)] = 0
    """Search only configurations from this number on, so that several jobs can share a space."""
    index_to: Annotated[int, Meta(ge=0)] = 0
    """Search only configurations before this number; 0: all."""
    feature_type: Literal["knob", "store"] = "knob"
    """Features of the cost model: values of knobs, or also (for the best by knobs) the code that they lead to."""
    loss_type: Literal["reg", "rank"] = "rank"
    """The cost model predicts scores (`reg`, AutoTVM's default), or only their order, which takes fewer trials."""
    num_warmup_samples: Annotated[int, Meta(ge=1, le=1_000_000)] = 16
    """Measurements of a task before the cost model is asked."""
    plan_size: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Number of best predictions that are searched for, of which a round takes the best."""
    epsilon: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Share of each round that is chosen at random."""
    diversity_filter_ratio: Annotated[float, Meta(ge=0, le=100)] = 0.0
    """Factor of the candidates from which a round takes the most different ones; 1: the best."""
    sa_n_iter: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """Iterations of the annealing, at most."""
    sa_parallel_size: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Chains of the annealing."""
    sa_temp: Annotated[float, Meta(ge=0, le=100)] = 1.0
    """Temperature at its start; it falls to 0."""
    sa_early_stop: Annotated[int, Meta(ge=1, le=10_000)] = 50
    """Iterations without a change of the plan after which the annealing ends."""
    ga_pop_size: Annotated[int, Meta(ge=2, le=10_000)] = 100
    """Configurations of a generation; budgets below it make `ga` random."""
    ga_elite_num: Annotated[int, Meta(ge=0, le=10_000)] = 3
    """Number of the best that stay parents in all generations."""
    ga_mutation_prob: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Probability of a mutation of each knob of a child."""
    transfer: bool = True
    """Whether a task's cost model starts with what other tasks of the same template taught, and a task tries the best
    of those that differ from it only in what is fused (`xgb` only)."""


def wanted(option: str, text: str) -> dict[str, list[object]]:
    """The values that `knobs` or `enlarge` lists for each knob. Raises RequestError."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, list[object]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(
            f"backend autotvm, option {option}: {error}. Give a JSON object of lists, such as"
            f" {option}='{{\"tile_w\": [7, 14]}}'"
        ) from error


def read(given: Mapping[str, bool | int | float | str]) -> Options:
    """The options of a job, checked as far as that is possible without its tasks. Raises RequestError."""
    found = options.read("autotvm", Options, given)
    wanted("knobs", found.knobs)
    wanted("enlarge", found.enlarge)
    if found.index_to and found.index_to <= found.index_from:
        raise RequestError(
            f"backend autotvm: index_to {found.index_to} leaves nothing after index_from {found.index_from};"
            " give a larger one, or 0 for the end of the space"
        )
    return found
