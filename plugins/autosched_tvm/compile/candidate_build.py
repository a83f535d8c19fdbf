"""Builds one candidate: its trace is replayed on the workload, lowered, compiled and linked. Runs in a worker."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from autosched_tvm.compile import intrinsics, lowering, rules, shared_library, targets
from autosched_tvm.compile.integers import tile_instructions
from autosched_tvm.compile.winograd import kernel


@lru_cache(maxsize=256)
def load_task(path: str) -> Any:
    """A task's workload."""
    return tvm.ir.load_json(Path(path).read_text())


@lru_cache(maxsize=8)
def load_target(text: str) -> Any:
    """A target from its JSON form, whose intrinsics are known from then on."""
    intrinsics.install_for(targets.triple_of(text))
    return tvm.target.Target(json.loads(text))


def replay(workload: Any, candidate: bytes) -> Any:
    """The workload under a candidate's schedule; what its search remembers with it plays no part."""
    tile_instructions.register_named(candidate.decode())
    schedule = tvm.s_tir.Schedule(workload, debug_mask=0, enable_check=False)
    tvm.s_tir.Trace.apply_json_to_schedule(json.loads(candidate)[:2], schedule)
    return schedule


def scheduled(workload: Any, candidate: bytes) -> Any:
    """The workload's module under a candidate's schedule, ready to be lowered."""
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(replay(workload, candidate).mod)
    return kernel.expanded(module)


def build(task: str, target: str, candidate: bytes, output: str) -> str:
    """Leave a shared library at `output`; return the digest of its object code."""
    workload = load_task(task)
    module = scheduled(workload, candidate) if candidate else workload
    return _link(module, target, output)


def build_by_rule(task: str, target: str, output: str) -> str:
    """Leave a shared library with the schedule of the rules, which the tuned build uses without a record, at `output`;
    return the digest of its object code.
    """
    workload = load_task(task)
    return _link(tvm.IRModule({"main": rules.by_rule(workload["main"], load_target(target))}), target, output)


def _link(module: Any, target: str, output: str) -> str:
    library = tvm.tirx.build(module, target=load_target(target), pipeline=lowering.install())
    return shared_library.write(library, output, targets.triple_of(target))
