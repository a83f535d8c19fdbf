"""Features of a configuration after it is applied: TVM's features of each store in the program.

They are more expressive than the values of knobs, and mean the same in all templates. Each takes 12 milliseconds, so
they only rerank the best of a plan.
"""

from collections.abc import Sequence

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.s_tir import meta_schedule as ms

from autosched_backend_autotvm.config_space import ConfigSpace
from autosched_backend_autotvm.knob_features import Matrix
from autosched_backend_autotvm.search import Template
from autosched_tvm.api import SearchContext, intrinsics
from autosched_tvm.tvm_types import IRModule

PER_STORE = 164
KEPT_MAX = 10_000
"""Maximum number of configurations whose features are kept, at 1.3 KB each."""


class StoreFeatures:
    """Features of one task."""

    def __init__(self, site: SearchContext, template: Template, space: ConfigSpace) -> None:
        self._workload, self._template, self._space = site.workload, template, space
        intrinsics.install()
        self._context = ms.TuneContext(mod=site.workload, target=site.target, num_threads=site.threads)
        self._extractor = ms.feature_extractor.PerStoreFeature()
        self._kept: dict[int, NDArray[np.float32]] = {}

    def rows(self, indices: Sequence[int]) -> Matrix:
        """Returns one row for each configuration: maximum and mean of each feature over stores; NaN where it does not
        apply."""
        if len(self._kept) > KEPT_MAX:
            self._kept.clear()
        for index in indices:
            if index not in self._kept:
                self._kept[index] = self._row(index)
        return np.stack([self._kept[index] for index in indices])

    def _row(self, index: int) -> NDArray[np.float32]:
        schedule = tvm.s_tir.Schedule(self._workload, debug_mask=0, enable_check=False)
        try:
            self._template.apply(schedule, self._space.config(index))
            args = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
            candidate = ms.search_strategy.MeasureCandidate(schedule, args)
            stores = self._extractor.extract_from(self._context, [candidate])[0].numpy()
        except Exception:  # TVM raises various exceptions; the configuration will fail again when it is selected
            return np.full(2 * PER_STORE, np.nan, np.float32)
        return np.concatenate([stores.max(axis=0), stores.mean(axis=0)]).astype(np.float32)


def shape_of(workload: IRModule) -> tuple[int, ...]:
    """Returns the dimensions of all inputs and outputs, in order."""
    args = ms.arg_info.ArgInfo.from_entry_func(workload, remove_preproc=True)
    return tuple(int(extent) for arg in args for extent in arg.shape)
