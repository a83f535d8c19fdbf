"""Takes the tunable tasks out of a network: equal kernels once, with their weights; the rest is named with a reason."""

import re
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched.backend import Skipped
from autosched.model import TaskInfo
from autosched.tvm.orders import Extracted

TRIVIAL_FLOPS_PER_ELEMENT = 1.0
TRIVIAL_SHARE = 2e-5
"""An operator with less of the network's arithmetic than this cannot be seen in its latency."""

WORDS_MAX = 4
NAME_MAX = 200

Shape = tuple[int, ...]


def extract(module: Any, target: Any) -> tuple[Extracted, list[Any]]:
    """Tasks, the heaviest first, with their workloads in the same order."""
    found = []
    skipped = []
    for task in ms.relax_integration.extract_tasks(module, target):
        workload = task.dispatched[0]
        flops = float(tvm.s_tir.analysis.estimate_tir_flops(workload))
        buffers = [tuple(int(d) for d in info.shape) for info in ArgInfo.from_entry_func(workload, remove_preproc=True)]
        found.append((str(task.task_name)[:NAME_MAX], int(task.weight), flops, buffers, workload))
    total = sum(weight * flops for _, weight, flops, _, _ in found)
    chosen = []
    for name, weight, flops, buffers, workload in found:
        if reason := _trivial(weight * flops, weight * _elements(buffers[-1]), total):
            skipped.append(Skipped(name, reason))
        else:
            chosen.append((name, weight, flops, buffers, workload))
    chosen.sort(key=lambda task: (-task[1] * task[2], task[0]))
    infos = tuple(
        TaskInfo(
            task=index, name=name, workload=f"{tvm_ffi.structural_hash(workload) & (2**64 - 1):016x}", weight=weight,
            flops=flops, shape=describe(name, buffers),
        )
        for index, (name, weight, flops, buffers, workload) in enumerate(chosen, start=1)
    )  # fmt: skip
    covered = sum(info.weight * info.flops for info in infos)
    extracted = Extracted(infos, tuple(skipped), sum(i.weight for i in infos), covered / total if total else 0.0)
    return extracted, [workload for *_, workload in chosen]


def save(workload: Any, path: Path) -> None:
    """Write a workload where workers find it."""
    path.write_text(tvm.ir.save_json(workload))


def describe(name: str, buffers: list[Shape]) -> str:
    """A task in words: "conv2d+add+relu 16x55x55 -> 64x55x55, 3x3"."""
    words = [word for word in _words(name) if word != "tir"]
    operators = "+".join(
        words if len(words) <= WORDS_MAX else [*words[: WORDS_MAX - 1], f"{len(words) - WORDS_MAX + 1} more"]
    )
    inputs, output = buffers[:-1], buffers[-1]
    if not inputs:
        return f"{operators} {_by(output)}"
    text = f"{operators} {_by(inputs[0])}"
    if "conv" in operators and len(inputs) > 1 and len(inputs[1]) > 2:
        return f"{text} -> {_by(output)}, {_by(inputs[1][2:])}"
    if "matmul" in operators and len(inputs) > 1:
        return f"{text} by {_by(inputs[1])}"
    return text if output == inputs[0] else f"{text} -> {_by(output)}"


_TAILS = frozenset({"to", "dims", "slice", "pool1d", "pool2d", "pool3d", "norm", "transpose"})


def _words(name: str) -> list[str]:
    """The operators in a fused kernel's name, without their numbers; some operators have underscores themselves."""
    words: list[str] = []
    open_word = False
    for word in name.removeprefix("fused_").split("_"):
        bare = re.sub(r"\d+$", "", word)
        if open_word and bare in _TAILS:
            words[-1] += f"_{bare}"
        else:
            words.append(bare)
        open_word = bare == word  # a number ends a name
    return words


def _by(shape: Shape) -> str:
    inner = shape[1:] if len(shape) > 2 and shape[0] == 1 else shape
    return "x".join(str(d) for d in inner) or "scalar"


def _elements(shape: Shape) -> int:
    count = 1
    for d in shape:
        count *= d
    return count


def _trivial(flops: float, elements: int, total: float) -> str:
    """Why an operator is not worth a trial; empty when it is."""
    if flops == 0:
        return "moves data, no arithmetic"
    if flops <= TRIVIAL_FLOPS_PER_ELEMENT * elements:
        return "one operation per element: memory decides its speed"
    if flops < TRIVIAL_SHARE * total:
        return f"{flops / total:.4%} of the network's arithmetic"
    return ""
