"""Compiles a fused network as the tuned build is compiled, and runs it."""

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from autosched_tvm.compile import lowering, network_compiler


def outputs(module: Any, target: Any, inputs: Iterable[Any], *, by_rule: bool = False) -> list[Any]:
    """Returns the outputs of a network for arrays, in the order of its inputs. `by_rule`: give kernels schedules by
    rule."""
    with target, ms.database.MemoryDatabase(), tvm.transform.PassContext(opt_level=3):
        pipeline = network_compiler._pipeline(target if by_rule else None)
        built = relax.build(module, target=target, relax_pipeline=pipeline, tir_pipeline=lowering.install())
    made = relax.VirtualMachine(built, tvm.cpu())["main"](*map(tvm.runtime.tensor, inputs))
    return [one.numpy() for one in ([made] if hasattr(made, "numpy") else made)]
