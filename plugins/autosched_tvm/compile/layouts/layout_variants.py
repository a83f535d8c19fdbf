"""A network in several assignments of layouts: the variants to tune, and the fastest one after tuning."""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import tvm
from tvm import relax

from autosched.model import TaskInfo
from autosched_tvm.compile import onnx_import, task_extraction
from autosched_tvm.compile.integers import dot_instructions, tile_instructions
from autosched_tvm.compile.layouts import layout_assignment, transform_cost
from autosched_tvm.compile.layouts.layout import Layout, busy
from autosched_tvm.compile.layouts.layout_assignment import Converted, Survey
from autosched_tvm.compile.layouts.layout_option import UNTOUCHED, LayoutOption
from autosched_tvm.compile.layouts.operator_layouts import Way
from autosched_tvm.compile.relax_operators import Shape
from autosched_tvm.compile.winograd.algebra import Algorithm
from autosched_tvm.tvm_types import IRModule, PrimFunc, Target

BUSY_ENOUGH = 0.75
"""Minimum share of busy lanes with blocks; below it NHWC is tried as well."""
UNTUNED_FLOPS = 1.5e9
"""Assumed speed of an unmeasured kernel without a schedule, in operations per second."""


@dataclass(frozen=True)
class Variant:
    """A network in one assignment."""

    name: str
    fused: Any
    plan: tuple[Way, ...] = ()
    """Way of each operator, in order; empty for a network without layouts to choose."""
    ways: tuple[Way, ...] = ()
    """Way of each convolution, in order."""
    kernels: tuple[Any, ...] = ()
    """Weights of each convolution, which identify its kernel."""
    moves: tuple[tuple[Shape, Layout, Layout], ...] = ()

    @cached_property
    def calls(self) -> tuple["Call", ...]:
        """Calls of kernels in an inference, in order."""
        functions = {gv.name_hint: function for gv, function in self.fused.functions_items()}
        known: dict[str, Kernel] = {}
        calls = []
        for block in self.fused["main"].body.blocks:
            for binding in block.bindings:
                value = getattr(binding, "value", None)
                if not isinstance(value, relax.Call) or getattr(value.op, "name", "") != "relax.call_tir":
                    continue
                name = value.args[0].name_hint
                if name.startswith("reshape"):  # a reshape becomes another view of the same memory
                    continue
                if name not in known:
                    known[name] = Kernel.of(functions[name])
                calls.append(Call(known[name], tuple(getattr(value.args[1], "fields", (value.args[1],)))))
        return tuple(calls)

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Hash of each convolution's kernel, in order; empty where it is not found. Convolutions that share weights are
        told apart by their order."""
        readers: defaultdict[Any, deque[str]] = defaultdict(deque)
        for call in self.calls:
            for argument in call.arguments:
                readers[argument].append(call.kernel.hash)
        return tuple(readers[kernel].popleft() if readers[kernel] else "" for kernel in self.kernels)


@dataclass(frozen=True)
class Kernel:
    """A function of a fused network."""

    hash: str
    flops: float
    bytes: float

    @classmethod
    def of(cls, function: PrimFunc) -> "Kernel":
        """Returns the kernel in the form of which tasks are made."""
        workload = task_extraction.program_of(function)
        size = sum(4.0 * math.prod(shape) for shape in task_extraction.buffers_of(workload))
        return cls(
            task_extraction.workload_hash(workload), float(tvm.s_tir.analysis.estimate_tir_flops(workload)), size
        )


@dataclass(frozen=True)
class Call:
    """One use of a kernel."""

    kernel: Kernel
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Offer:
    """Variants of a network."""

    variants: Sequence[Variant]
    survey: Survey | None = None
    """Operators of the network; None where no layout can be chosen."""


@dataclass(frozen=True)
class Best:
    """The variant with the lowest expected latency, and the reason."""

    variant: Variant
    said: str


def single(module: IRModule, target: Target, wanted: LayoutOption) -> Variant:
    """Returns a cleaned module with all convolutions in one layout, where they allow it."""
    found = None if wanted in UNTOUCHED else _surveyed(module, target)
    if found is None:
        return Variant(wanted.value, onnx_import.fused(module, target))
    ways = layout_assignment.plan(found, layout_assignment.uniform(wanted))
    return _variant(wanted.value, found, ways, target)


def offered(module: IRModule, target: Target, wanted: LayoutOption, *, winograd: bool = False) -> Offer:
    """Returns the variants to tune. Several, whose tasks compete, for `auto` with several layouts, and for `winograd`
    where blocks exist (the direct way and Winograd's algorithm)."""
    if wanted not in (LayoutOption.AUTO, LayoutOption.NCHWC) or (wanted is LayoutOption.NCHWC and not winograd):
        return Offer([single(module, target, wanted)])
    winograd = winograd and str(target.kind.name) == "llvm"
    width = layout_assignment.lanes(target)
    found = _surveyed(module, target)
    if found is None or not found.convolutions:
        return Offer([single(module, target, LayoutOption.KEEP if wanted is LayoutOption.AUTO else wanted)])
    made = (
        [*([] if _integers(found) else [_kept(found, module, target)]), *_converted(found, width, target)]
        if wanted is LayoutOption.AUTO
        else [_variant(wanted.value, found, layout_assignment.plan(found, layout_assignment.uniform(wanted)), target)]
    )
    return Offer([*made, *(_winograd(found, target) if winograd else ())], found)


def grouped(variants: Sequence[Variant], infos: Sequence[TaskInfo]) -> tuple[TaskInfo, ...]:
    """Returns the tasks of several variants, with the groups in which they compete: one group for each kernel of the
    network.

    Weights identify convolutions across variants. Other tasks (pools, means) are matched by order among their kind, if
    all variants have the same number.
    """
    if len(variants) == 1:
        return tuple(infos)
    by_hash = {info.workload: info for info in infos}
    places = list(zip(*(variant.workloads for variant in variants), strict=True))
    others = [
        [one.kernel.hash for one in variant.calls if one.kernel.hash in by_hash.keys() - {*variant.workloads}]
        for variant in variants
    ]
    if len({tuple(_operator(by_hash[one]) for one in hashes) for hashes in others}) == 1:
        places += zip(*others, strict=True)
    counts = Counter(tuple(sorted({by_hash[one].task for one in hashes if one in by_hash})) for hashes in places)
    groups: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for rivals, calls in counts.items():
        for task in rivals if len(rivals) > 1 else ():
            groups[task][",".join(map(str, rivals))] = calls
    return tuple(
        msgspec.structs.replace(
            info, groups=groups[info.task], weight=max(info.weight, sum(groups[info.task].values()))
        )
        for info in infos
    )


def _operator(info: TaskInfo) -> str:
    """Returns the first operator of a task in any layout: "max_pool2d"."""
    return info.shape.partition(" ")[0].partition("+")[0]


def best(offer: Offer, target: Target, latencies_s: Mapping[str, float], wanted: LayoutOption) -> Best:
    """Returns the assignment with the lowest expected latency, from the best latency of each workload (by hash) and the
    cost of transforms.

    Besides the offered variants, each convolution may have another of its layouts. An assignment is judged by all its
    kernels. `wanted`: the layout option of the offer.
    """
    variants, found = list(offer.variants), offer.survey
    if found is None or len(variants) == 1:
        return Best(variants[0], "no layout can be chosen in this network" if wanted is LayoutOption.AUTO else "")
    move_cost = transform_cost.seconds_per_byte(target)
    plan = _mixed(found, variants, latencies_s, move_cost)
    if plan not in [variant.plan for variant in variants]:
        variants.append(_variant("mixed", found, plan, target))
    expected = [expected_s(variant, latencies_s, move_cost) for variant in variants]
    first = min(range(len(variants)), key=lambda index: (expected[index], index))
    return Best(variants[first], _said(variants, [_measured_s(variant, latencies_s) for variant in variants], first))


def expected_s(variant: Variant, latencies_s: Mapping[str, float], move_cost: float) -> float:
    """Returns the network's expected latency: measured kernels, and estimates from arithmetic and bytes for the
    others."""
    return sum(
        latencies_s.get(call.kernel.hash) or call.kernel.flops / UNTUNED_FLOPS + call.kernel.bytes * move_cost
        for call in variant.calls
    )


def _measured_s(variant: Variant, latencies_s: Mapping[str, float]) -> float | None:
    """Returns the latency of a network's measured kernels; None if not all of its convolutions were measured."""
    if not all(one in latencies_s for one in variant.workloads):
        return None
    return sum(latencies_s.get(call.kernel.hash, 0.0) for call in variant.calls)


def _surveyed(module: IRModule, target: Target) -> Survey | None:
    width = layout_assignment.lanes(target)
    instruction, tiles = dot_instructions.of_target(target), tile_instructions.available(target)
    return layout_assignment.survey(module, width, instruction, tiles=tiles)


def _variant(name: str, found: Survey, ways: Sequence[Way], target: Target) -> Variant:
    made: Converted = layout_assignment.convert(found, ways, target)
    chosen = tuple(ways[index] for index in found.convolutions)
    return Variant(name, onnx_import.fused(made.module, target), tuple(ways), chosen, made.kernels, made.moves)


def _kept(found: Survey, module: IRModule, target: Target) -> Variant:
    convolutions = [found.nodes[index] for index in found.convolutions]
    kernels = tuple(node.value.value.args[1] for node in convolutions)
    ways = tuple(node.operator.ways[0] for node in convolutions)
    return Variant("nchw", onnx_import.fused(module, target), (), ways, kernels)


def _converted(found: Survey, width: int, target: Target) -> list[Variant]:
    """Returns the blocked variant, and where blocks fit badly a second one with those convolutions in NHWC."""
    ways = layout_assignment.plan(found, layout_assignment.uniform(LayoutOption.NCHWC))
    made = [_variant("nchwc", found, ways, target)]
    loose = {index for index in found.convolutions if _loose(found.nodes[index], width)}
    if loose:

        def price(index: int, way: Way) -> float:
            return layout_assignment.uniform(LayoutOption.NHWC if index in loose else LayoutOption.NCHWC)(index, way)

        made.append(_variant("nchwc and nhwc", found, layout_assignment.plan(found, price), target))
    return made


def _winograd(found: Survey, target: Target) -> list[Variant]:
    """Returns variants with each suitable convolution by the most promising Winograd algorithm, then the second most
    promising, and so on; the rest is blocked."""
    worth = {
        index: tuple(dict.fromkeys(way.winograd for way in found.nodes[index].operator.ways if way.winograd))
        for index in found.convolutions
    }
    direct = layout_assignment.uniform(LayoutOption.NCHWC)
    made = []
    for rank in range(max(map(len, worth.values()))):
        chosen = {index: own[rank] for index, own in worth.items() if rank < len(own)}

        def price(index: int, way: Way, chosen: Mapping[int, Algorithm] = chosen) -> float:
            if index not in chosen:
                return direct(index, way)
            return way.cost if way.winograd == chosen[index] else math.inf

        made.append(_variant(f"nchwc, winograd {rank + 1}", found, layout_assignment.plan(found, price), target))
    return made


def _integers(found: Survey) -> bool:
    """Returns whether there are 8-bit convolutions, which are far too slow without blocks."""
    return any(str(found.nodes[index].value.var.ty.dtype) == "int32" for index in found.convolutions)


def _loose(node: layout_assignment.Node, width: int) -> bool:
    if node.product:
        return False
    blocks = [way.output.block for way in node.operator.ways if way.output.block and not way.winograd]
    channels = (node.shape or (0, 0))[1]
    return not blocks or max(busy(channels, block, width) for block in blocks) < BUSY_ENOUGH


def _mixed(
    found: Survey, variants: Sequence[Variant], latencies_s: Mapping[str, float], move_cost: float
) -> tuple[Way, ...]:
    """Returns the plan with the layout of each convolution that minimises the cost of convolutions and transforms."""
    known: dict[tuple[int, Way], float] = {}
    for variant in variants:
        flops = {call.kernel.hash: call.kernel.flops for call in variant.calls}
        for index, way, workload in zip(found.convolutions, variant.ways, variant.workloads, strict=True):
            latency_s = latencies_s.get(workload) or flops.get(workload, math.inf) / UNTUNED_FLOPS
            known[index, way] = min(latency_s, known.get((index, way), math.inf))

    def price(index: int, way: Way) -> float:
        return 0.0 if way.wanted is None else known.get((index, way), math.inf)

    return layout_assignment.plan(found, price, move_cost)


def _named(way: Way) -> str:
    """Returns the name of a way for messages."""
    if way.columns:
        return "products with packed weights"
    return f"convolutions in {way.output} by Winograd" if way.winograd else f"convolutions in {way.output}"


def _said(variants: Sequence[Variant], measured: Sequence[float | None], first: int) -> str:
    """Returns the note on the choice. `measured`: seconds of each variant, see `_measured_s`."""
    variant, seconds = variants[first], measured[first]
    counts = Counter(_named(way) for way in variant.ways)
    chosen = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    said = f"layouts: {chosen}; {len(variant.moves)} moves between layouts left"
    if seconds is None:
        return said
    others = ", ".join(
        f"{one.name} {other * 1e3:.3g}"
        for one, other in zip(variants, measured, strict=True)
        if one is not variant and other is not None
    )
    return f"{said}; measured kernels {seconds * 1e3:.3g} ms" + (f" ({others})" if others else "")
