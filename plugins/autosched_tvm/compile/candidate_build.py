"""Builds one candidate: replays its trace on the workload, lowers, compiles and links it. Runs in a worker."""

import json
from functools import lru_cache
from pathlib import Path

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from autosched_tvm.compile import cuda_code, intrinsics, lowering, rules, shared_library, targets
from autosched_tvm.compile.integers import tile_instructions
from autosched_tvm.compile.winograd import kernel
from autosched_tvm.tvm_types import IRModule, Schedule, Target


@lru_cache(maxsize=256)
def load_task(path: str) -> IRModule:
    """Returns a task's workload."""
    return tvm.ir.load_json(Path(path).read_text())


@lru_cache(maxsize=8)
def load_target(text: str) -> Target:
    """Returns a target from its JSON form, and registers its intrinsics."""
    intrinsics.install_for(targets.triple_of(text))
    if targets.arch_of(text):
        cuda_code.stay_off_gpus()
    return tvm.target.Target(json.loads(text))


def replay(workload: IRModule, candidate: bytes) -> Schedule:
    """Returns the workload under a candidate's schedule. Other fields that the search stores in the candidate are
    ignored."""
    tile_instructions.register_named(candidate.decode())
    schedule = tvm.s_tir.Schedule(workload, debug_mask=0, enable_check=False)
    tvm.s_tir.Trace.apply_json_to_schedule(json.loads(candidate)[:2], schedule)
    return schedule


def scheduled(workload: IRModule, candidate: bytes) -> IRModule:
    """Returns the workload's module under a candidate's schedule, ready to be lowered."""
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(replay(workload, candidate).mod)
    return kernel.expanded(module)


def build(task: str, target: str, candidate: bytes, output: str) -> str:
    """Writes a shared library to `output`; returns the digest of its object code."""
    workload = load_task(task)
    module = scheduled(workload, candidate) if candidate else workload
    return _link(module, target, output)


def build_by_rule(task: str, target: str, output: str) -> str:
    """Writes a shared library with the schedule by rule, which the tuned build uses without a record, to `output`;
    returns the digest of its object code."""
    workload = load_task(task)
    return _link(tvm.IRModule({"main": rules.by_rule(workload["main"], load_target(target))}), target, output)


def _link(module: IRModule, target: str, output: str) -> str:
    library = tvm.tirx.build(module, target=load_target(target), pipeline=lowering.install())
    return shared_library.write(library, output, targets.triple_of(target), targets.arch_of(target))
