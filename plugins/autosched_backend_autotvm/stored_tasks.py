"""Stored schedules of a workload as rows of features, from which rankers learn."""

from collections.abc import Mapping

import numpy as np

from autosched_backend_autotvm import template_matching
from autosched_backend_autotvm.config_space import ConfigSpace
from autosched_backend_autotvm.search import configuration
from autosched_backend_autotvm.store_features import shape_of
from autosched_backend_autotvm.task_features import TaskFeatures
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_tvm.api import Family, MeasuredTask
from autosched_tvm.tvm_types import IRModule, Target


def configurations(space: ConfigSpace, latencies_s: Mapping[bytes, float | None]) -> dict[int, float | None]:
    """Returns the seconds of each configuration, None for a failure; candidates that are none of the space are left
    out."""
    found = ((configuration(space, candidate), s) for candidate, s in latencies_s.items())
    return {one[0]: s for one, s in found if one is not None}


def measured_task(
    workload: str, module: IRModule, target: Target, networks: frozenset[str], latencies_s: Mapping[bytes, float | None]
) -> tuple[Family, MeasuredTask] | None:
    """Returns the operator family of a workload and its measured schedules; None without a template, and where no
    schedule is one of the template as it is now.

    `latencies_s`: seconds of each candidate, None for a failure.
    """
    template = template_matching.find(module, target).template
    if template is None:
        return None
    space, shape = template.space(), shape_of(module)
    rows = configurations(space, latencies_s)
    fastest_s = min((s for s in rows.values() if s), default=0.0)
    if not rows:
        return None
    features = TaskFeatures(space, shape)
    speeds = np.array([fastest_s / s if s else 0.0 for s in rows.values()], np.float32)
    matrix = features.of(ConfigSampler(space, 0, 0).digits(list(rows)))
    return Family(template.name, space.version), MeasuredTask(workload, networks, shape, features.names, matrix, speeds)
