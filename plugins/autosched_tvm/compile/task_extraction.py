"""Extracts the tunable tasks of a network: each distinct workload once, with its weight; other operators with a reason.

Kernels that differ only in float constants, such as the scales of a quantised network, are one workload: a constant
changes the result of a kernel, and not its speed.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched.backend import Skipped
from autosched.model import TaskInfo
from autosched_tvm.tvm_types import Expr, IRModule, PrimFunc, Target
from autosched_tvm.worker_messages import TEMPLATE, Extracted

TRIVIAL_FLOPS_PER_ELEMENT = 1.0
TRIVIAL_SHARE = 2e-5
"""Share of the network's arithmetic below which an operator has no visible effect on its latency."""

PLAIN_MAX = 4.0
"""Maximum multiple of 0.5 that is part of a workload. Sums start at 0, a factor of 1 has no effect, and powers of 2, 3
and 0.5 compile to other instructions."""
HUGE = 1e30
"""Minimum absolute value of constants that are part of a workload: a maximum starts at the minimum of its type."""
ANY = 0.7
"""Substitute for any other float constant in the hash of a workload."""

SCHEDULED = "tirx.is_scheduled"
"""TVM's attribute of a kernel whose loops are fixed."""
BY_RULE = "has a schedule by rule"

WORDS_MAX = 4
NAME_MAX = 200

Shape = tuple[int, ...]


def extract(modules: Sequence[IRModule], target: Target) -> tuple[Extracted, list[IRModule]]:
    """Returns the tasks of one network, fused in one or several layouts, with their workloads: each distinct one once,
    the heaviest first. Shares of the network refer to the first module."""
    found: dict[str, _Found] = {}
    skipped: dict[str, Skipped] = {}
    uses, covered, total = 0, 0.0, 0.0
    for module in modules:
        inside = _merged(_find(task) for task in ms.relax_integration.extract_tasks(module, target))
        work = sum(one.work for one in inside)
        worth = []
        for one in inside:
            reason = BY_RULE if one.scheduled else _trivial(one.work, one.weight * _elements(one.buffers[-1]), work)
            if reason:
                skipped.setdefault(one.hash, Skipped(one.name, reason))
                continue
            worth.append(one)
            if one.hash not in found or found[one.hash].weight < one.weight:
                found[one.hash] = one
        if module is modules[0]:
            uses, covered, total = sum(one.weight for one in worth), sum(one.work for one in worth), work
    chosen = sorted(found.values(), key=lambda one: (-one.work, one.name, one.hash))
    infos = tuple(
        TaskInfo(
            task=index, name=one.name, workload=one.hash, weight=one.weight, flops=one.flops,
            shape=describe(one.name, one.buffers), template=TEMPLATE,
        )
        for index, one in enumerate(chosen, start=1)
    )  # fmt: skip
    left = tuple(one for key, one in skipped.items() if key not in found)
    extracted = Extracted(infos, left, uses, covered / total if total else 0.0)
    return extracted, [one.workload for one in chosen]


@dataclass(frozen=True)
class _Found:
    name: str
    hash: str
    weight: int
    flops: float
    buffers: list[Shape]
    workload: IRModule
    scheduled: bool

    @property
    def work(self) -> float:
        return self.weight * self.flops


def _find(task: Any) -> _Found:
    workload = task.dispatched[0]
    flops = float(tvm.s_tir.analysis.estimate_tir_flops(workload))
    name = str(task.task_name)[:NAME_MAX]
    scheduled = any(f.attrs is not None and f.attrs.get(SCHEDULED) for f in workload.functions.values())
    return _Found(name, workload_hash(workload), int(task.weight), flops, buffers_of(workload), workload, scheduled)


def _merged(found: Iterable[_Found]) -> list[_Found]:
    """Returns one entry for each workload, with the calls of all of its kernels."""
    by_hash: dict[str, _Found] = {}
    for one in found:
        first = by_hash.setdefault(one.hash, one)
        if first is not one:
            by_hash[one.hash] = replace(first, weight=first.weight + one.weight)
    return list(by_hash.values())


def program_of(kernel: PrimFunc) -> IRModule:
    """Returns a kernel of a fused network as the program of a task."""
    return tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})


def hash_of(program: IRModule) -> str:
    """Returns the structural hash of a program, scheduled or not, in 16 digits. Equal programs have equal hashes in
    each process."""
    return f"{tvm_ffi.structural_hash(program) & (2**64 - 1):016x}"


def workload_hash(program: IRModule) -> str:
    """Returns a hash like `hash_of` that is equal for programs without schedules that differ only in float
    constants."""
    return hash_of(tvm_ffi.structural.structural_map(program, (tirx.FloatImm, _anonymous)))


def _anonymous(constant: Expr) -> Expr:
    value = abs(float(constant.value))
    if value <= PLAIN_MAX and value * 2 == int(value * 2):
        return constant
    return tirx.FloatImm(str(constant.ty), ANY) if math.isfinite(value) and value < HUGE else constant


def buffers_of(workload: IRModule) -> list[Shape]:
    """Returns the shapes of the buffers that a workload reads, and last the one that it writes."""
    return [tuple(int(d) for d in info.shape) for info in ArgInfo.from_entry_func(workload, remove_preproc=True)]


def save(workload: IRModule, path: Path) -> None:
    """Writes a workload for the workers."""
    path.write_text(tvm.ir.save_json(workload))


def describe(name: str, buffers: list[Shape]) -> str:
    """Returns a task in words: "conv2d NCHW16c+add+relu 16x55x55 -> 64x55x55, 3x3"."""
    tiled = _TILED.search(name)
    words = [word for word in _words(_TILED.sub("winograd_", name)) if word != "tir"]
    inputs, output = buffers[:-1], buffers[-1]
    blocked = len(output) == 5 and words[0].endswith(("NCHWc", "pool2d"))
    if blocked:
        words[0] = f"{words[0].removesuffix(' NCHWc')} NCHW{output[-1]}c"
    operators = "+".join(
        words if len(words) <= WORDS_MAX else [*words[: WORDS_MAX - 1], f"{len(words) - WORDS_MAX + 1} more"]
    )
    say = _by_blocks if blocked else _by
    if not inputs:
        return f"{operators} {say(output)}"
    text = f"{operators} {say(inputs[0])}"
    if tiled:
        return f"{text} -> {say(output)}, {tiled['taps']} in tiles of {tiled['tile']}"
    if "conv" in operators and len(inputs) > 1 and len(inputs[1]) > 2:
        window = inputs[1][:2] if "NHWC" in operators else inputs[1][2:4] if blocked else inputs[1][2:]
        return f"{text} -> {say(output)}, {'x'.join(map(str, window))}"
    if operators.startswith("packed matmul") and len(inputs) > 1:
        return f"{text} by {inputs[1][1]}x{output[-1]}"
    if "matmul" in operators and len(inputs) > 1:
        return f"{text} by {_by(inputs[1])}"
    return text if output == inputs[0] else f"{text} -> {say(output)}"


_TILED = re.compile(r"winograd_(?P<tile>\d+x\d+)of(?P<taps>\d+x\d+)_")
"""Pattern of the part of a kernel's name that `winograd.algebra.Algorithm.words` makes."""
_HEADS = frozenset({"depthwise", "group", "packed", "winograd"})
_TAILS = frozenset({"to", "dims", "slice", "pool1d", "pool2d", "pool3d", "norm", "transpose", "transform"})
_LAYOUTS = frozenset({"NCHWc", "NHWC"})


def _words(name: str) -> list[str]:
    """Returns the operators in a fused kernel's name, without their numbers. Some operators contain underscores."""
    words: list[str] = []
    open_word = False
    for word in name.removeprefix("fused_").split("_"):
        bare = re.sub(r"\d+$", "", word)
        if open_word and bare in _TAILS:
            words[-1] += f"_{bare}"
        elif open_word and (bare in _LAYOUTS or words[-1] in _HEADS):
            words[-1] += f" {bare}"
        else:
            words.append(bare)
        open_word = bare == word  # a number ends a name
    return words


def _by(shape: Shape) -> str:
    inner = shape[1:] if len(shape) > 2 and shape[0] == 1 else shape
    return "x".join(str(d) for d in inner) or "scalar"


def _by_blocks(shape: Shape) -> str:
    """Returns a blocked shape in words, as `_by` does for others."""
    n, chunks, *image, block = shape
    return _by((n, chunks * block, *image))


def _elements(shape: Shape) -> int:
    count = 1
    for d in shape:
        count *= d
    return count


def _trivial(flops: float, elements: int, total: float) -> str:
    """Returns the reason why an operator is not tuned; empty when it is."""
    if flops == 0:
        return "moves data, no arithmetic"
    if flops <= TRIVIAL_FLOPS_PER_ELEMENT * elements:
        return "one operation per element: memory decides its speed"
    if flops < TRIVIAL_SHARE * total:
        return f"{flops / total:.4%} of the network's arithmetic"
    return ""
