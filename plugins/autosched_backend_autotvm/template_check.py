"""Checks a schedule template: drawn configurations are applied, built, and compared with the task's results."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched_backend_autotvm.search import Maker
from autosched_backend_autotvm.templates import user_templates
from autosched_backend_autotvm.templates.user_templates import UserTemplate
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_tvm.api import candidate_build
from autosched_tvm.tvm_types import IRModule, Target

DRAWN = 8
"""Number of configurations that are checked."""
RELATIVE, ABSOLUTE = 1e-4, 1e-5
"""Maximum difference of a result, relative to it and absolute: sums may be added up in another order."""
CPU = {"kind": "llvm", "num-cores": 1}


def check(template: UserTemplate, workload: IRModule, target: Target | None = None, drawn: int = DRAWN) -> int:
    """Checks configurations of a task that the template matches; returns the number of those that could be applied.

    `workload`: an IRModule with one PrimFunc "main", whose last argument is the result. `target`: a tvm.target.Target,
    one core of this CPU by default. Raises AssertionError if the template does not match, if no configuration can be
    applied, or for a wrong result.
    """
    target = tvm.target.Target(CPU) if target is None else target
    knobs = template.knobs(workload, target)
    assert knobs is not None, "the template does not match the task: knobs() returned None"
    made = user_templates.made(type(template).__name__, template, knobs)
    space = made.space()
    inputs = _inputs(workload)
    expected = _results(workload, target, inputs)
    applied = 0
    for index in ConfigSampler(space).fresh(Random(0), drawn, ()):
        candidate = Maker(workload, made, space).make(space.config(index))
        if candidate is None:
            continue
        applied += 1
        got = _results(candidate_build.scheduled(workload, candidate[0]), target, inputs)
        where = json.dumps(space.config(index))
        np.testing.assert_allclose(got, expected, RELATIVE, ABSOLUTE, err_msg=f"configuration {where}")
    assert applied, f"none of {drawn} configurations can be applied. The space: {space.describe()}"
    return applied


def _inputs(workload: IRModule) -> list[np.ndarray[Any, Any]]:
    infos = ArgInfo.from_entry_func(workload, remove_preproc=True)
    random = np.random.default_rng(0)
    return [random.uniform(0.1, 1.0, [int(extent) for extent in one.shape]).astype(str(one.dtype)) for one in infos]


def _results(module: IRModule, target: Target, inputs: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    buffers = [tvm.runtime.tensor(array) for array in inputs]
    tvm.tirx.build(module, target=target)["main"](*buffers)
    return buffers[-1].numpy()
