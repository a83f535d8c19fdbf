"""Options of a job, with defaults: the parameters of the thesis, and those of AutoTVM's tuners under their names
there."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from autosched.errors import RequestError
from autosched_tvm.api import LayoutOption, options


class Options(options.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the search over a template's configurations.

    The thesis' number of trials is the job's `trials`; its batch size and profiling timeout are `batch` and
    `run_timeout_s`.
    """

    layout: LayoutOption = LayoutOption.NCHWC
    """Memory layout of convolutions. Blocked layouts reach the peak of a core."""
    winograd: bool = True
    fallback: str = "ansor"
    """Backend for operators without a template; empty: they stay untuned."""
    tuner: Literal["xgb", "ga", "random", "grid"] = "xgb"
    """Tuner: `xgb` learns a cost model, `ga` is genetic, `random` draws uniformly, `grid` follows the numbers of the
    configurations."""
    knobs: str = ""
    """Restriction of knobs to values, as a JSON object: `{"tile_w": [7, 14]}`. Other knobs keep their values."""
    enlarge: str = ""
    """Values to add to knobs, as a JSON object, including knobs with a single value."""
    index_from: Annotated[int, Meta(ge=0)] = 0
    """Number of the first configuration to search, so that several jobs can share a space."""
    index_to: Annotated[int, Meta(ge=0)] = 0
    """Number before which the search ends; 0: the end of the space."""
    feature_type: Literal["knob", "store"] = "knob"
    """Features of the cost model: the values of knobs, or in addition, for the best by knobs, the code that they lead
    to."""
    loss_type: Literal["reg", "rank"] = "rank"
    """Loss of the cost model: scores (`reg`, AutoTVM's default), or only their order, which takes fewer trials."""
    num_warmup_samples: Annotated[int, Meta(ge=1, le=1_000_000)] = 16
    """Number of measurements of a task before the cost model is used."""
    plan_size: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Number of best predictions that are searched for. A round takes the best of them."""
    epsilon: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Share of each round that is random."""
    diversity_filter_ratio: Annotated[float, Meta(ge=0, le=100)] = 0.0
    """Factor of the candidates from which a round takes the most different ones; 1: take the best."""
    sa_n_iter: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """Maximum number of iterations of the annealing."""
    sa_parallel_size: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Number of chains of the annealing."""
    sa_temp: Annotated[float, Meta(ge=0, le=100)] = 1.0
    """Initial temperature of the annealing; it falls to 0."""
    sa_early_stop: Annotated[int, Meta(ge=1, le=10_000)] = 50
    """Number of iterations without a change of the plan after which the annealing ends."""
    ga_pop_size: Annotated[int, Meta(ge=2, le=10_000)] = 100
    """Number of configurations in a generation. With fewer trials, `ga` is random."""
    ga_elite_num: Annotated[int, Meta(ge=0, le=10_000)] = 3
    """Number of the best configurations that stay parents in all generations."""
    ga_mutation_prob: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Probability of a mutation of each knob of a child."""
    transfer: bool = True
    """Whether a task's cost model starts from other tasks of the same template, and a task tries the best candidates of
    tasks that differ only in fused operators (`xgb` only)."""


def wanted(option: str, text: str) -> dict[str, list[object]]:
    """Returns the values that `knobs` or `enlarge` lists for each knob. Raises RequestError."""
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
    """Returns the options of a job, checked as far as possible without its tasks. Raises RequestError."""
    found = options.read("autotvm", Options, given)
    wanted("knobs", found.knobs)
    wanted("enlarge", found.enlarge)
    if found.index_to and found.index_to <= found.index_from:
        raise RequestError(
            f"backend autotvm: index_to {found.index_to} leaves nothing after index_from {found.index_from};"
            " give a larger one, or 0 for the end of the space"
        )
    return found
