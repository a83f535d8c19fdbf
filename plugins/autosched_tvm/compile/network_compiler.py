"""Compiles a whole network, with the best schedule of each task or with none. Runs in a child process."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import tvm
from msgspec import Struct
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from autosched_runtime.side_file import FORMAT
from autosched_tvm.compile import (
    candidate_build,
    concats,
    cuda_code,
    kept_network,
    lowering,
    model_sources,
    onnx_import,
    outside_weights,
    rules,
    targets,
    task_extraction,
    toolchain,
)
from autosched_tvm.compile.kept_network import LoadedNetwork
from autosched_tvm.compile.layouts import layout_variants
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.layout_variants import Offer
from autosched_tvm.compile.model_sources import Source
from autosched_tvm.compile.movable_rounding import roundings_of
from autosched_tvm.compile.side_file import SideFile
from autosched_tvm.source_fingerprint import text_digest
from autosched_tvm.tensors import Array, Tensor
from autosched_tvm.tvm_types import IRModule, Pass, PrimFunc, Target
from autosched_tvm.worker_messages import Compilation, Compiled, TaskSchedules

DEFAULT, TUNED, UNSCHEDULED = "default", "tuned", "unscheduled"
"""Kinds of builds, and their file names. UNSCHEDULED: the kernels of the tuned build without schedules, which are
compared with them."""


class SideName(Struct, frozen=True):
    """Name and kind of a build, for its side file."""

    name: str
    build: str
    """DEFAULT, TUNED, UNSCHEDULED or, for other programs of TVM, any other text."""


def compile_network(compilation: Compilation, choices: Sequence[TaskSchedules]) -> Compiled:
    """Writes tuned.so and, if asked for, default.so to the folder, each with its side file; unscheduled.so for a
    network that computes with integers.

    In the tuned build, kernels without a measured schedule have one by rule.
    """
    network = _loaded(compilation)
    compiled = _compile_tuned(compilation, choices, network)
    if not compilation.untuned:
        return compiled
    _compile_default(compilation, network)
    return msgspec.structs.replace(compiled, builds=(*compiled.builds, DEFAULT))


def compile_untuned(compilation: Compilation) -> None:
    """Writes default.so and its side file."""
    _compile_default(compilation, _loaded(compilation))


def _compile_default(compilation: Compilation, network: LoadedNetwork) -> None:
    """Writes the default build, which is TVM's own: no schedules, the model's own layouts."""
    fused = onnx_import.fused(network.cleaned, candidate_build.load_target(compilation.target))
    who = SideName(compilation.name, DEFAULT)
    write_build(Path(compilation.folder) / DEFAULT, fused, network.source, compilation.target, who)


def compile_again(compilation: Compilation, choices: Sequence[TaskSchedules]) -> Compiled:
    """Compiles the tuned build again with other schedules. The default build stays, and so does the unscheduled one
    while the layouts are the same."""
    return _compile_tuned(compilation, choices, _loaded(compilation))


def _loaded(compilation: Compilation) -> LoadedNetwork:
    """Returns the prepared model: the one that this process imported, or from its file."""
    asked = compilation.model, compilation.target, compilation.layout
    if (kept := kept_network.take(*asked, winograd=compilation.winograd)) is not None:
        return kept
    source = model_sources.load(Path(compilation.model))
    return LoadedNetwork(source, source.cleaned(candidate_build.load_target(compilation.target)))


def _compile_tuned(compilation: Compilation, choices: Sequence[TaskSchedules], network: LoadedNetwork) -> Compiled:
    """Writes tuned.so to the folder, and unscheduled.so for a network that computes with integers."""
    source, target = network.source, candidate_build.load_target(compilation.target)
    schedules, lacking = applied(choices)
    layout, winograd = LayoutOption(compilation.layout), compilation.winograd
    fused, notes = laid_out(network.cleaned, target, choices, layout, winograd=winograd, offer=network.offer)
    tuned, used = with_schedules(fused, schedules, compilation.without_rule)
    builds, folder = [TUNED], Path(compilation.folder)
    write_build(folder / TUNED, tuned, source, compilation.target, SideName(compilation.name, TUNED))
    if source.integers and compilation.compares_kernels and not targets.triple_of(compilation.target):
        builds.append(UNSCHEDULED)
        _write_unscheduled(compilation, fused, source)
    best = {choice.task: choice.candidates[0] for choice in choices if choice.candidates}
    kept = sum(one.candidate == best[one.task] for one in schedules.values())
    return Compiled(used, (*lacking, *notes), len(best) - kept, tuple(builds))


def _write_unscheduled(compilation: Compilation, fused: IRModule, source: Source) -> None:
    """Writes the unscheduled build, unless there is one of the same network in the same layouts. It takes as long to
    compile as the tuned build."""
    path, key = Path(compilation.folder) / UNSCHEDULED, Path(compilation.folder) / f"{UNSCHEDULED}.key"
    target, code = compilation.target, text_digest("autosched_tvm.compile")
    wanted = " ".join((task_extraction.hash_of(fused), target, toolchain.versions(target), code))
    if key.exists() and key.read_text() == wanted:
        return
    key.unlink(missing_ok=True)
    write_build(path, fused, source, compilation.target, SideName(compilation.name, UNSCHEDULED))
    key.write_text(wanted)


def with_schedules(
    fused: IRModule, schedules: Mapping[str, "Applied"], without_rule: Collection[str] = ()
) -> tuple[IRModule, int]:
    """Returns a fused network with its kernels scheduled, by hash of the workload; and the number of workloads with a
    schedule. The kernels of the workloads `without_rule` get no schedule by rule later."""
    module = fused.clone()
    used = set()
    for variable, kernel in kernels(fused):
        schedule = schedules.get(key := task_extraction.workload_hash(kernel))
        if schedule is not None and (scheduled := schedule.to(kernel)) is not None:
            module.update_func(variable, scheduled.without_attr("global_symbol").with_attr(rules.SCHEDULE, rules.TUNED))
            used.add(key)
        elif key in without_rule:
            module.update_func(variable, fused[variable].with_attr(rules.NO_RULE, True))
    return module, len(used)


def kernels(fused: IRModule) -> Iterator[tuple[Any, Any]]:
    """Yields the name of each kernel of a fused network, and its program as that of a task."""
    for variable, function in fused.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            yield variable, task_extraction.program_of(function)


def laid_out(
    cleaned: IRModule, target: Target, choices: Sequence[TaskSchedules], layout: LayoutOption, *, winograd: bool,
    offer: Offer | None = None,
) -> tuple[Any, list[str]]:  # fmt: skip
    """Returns the fused network in its layouts, and notes on the choice. `offer`: its variants, if they are made
    already."""
    if layout is not LayoutOption.AUTO and not winograd:
        return layout_variants.single(cleaned, target, layout).fused, []
    latencies_s = {
        task_extraction.workload_hash(candidate_build.load_task(choice.workload)): choice.best_s
        for choice in choices
        if choice.best_s
    }
    offer = offer or layout_variants.offered(cleaned, target, layout, winograd=winograd)
    best = layout_variants.best(offer, target, latencies_s, layout)
    return best.variant.fused, [best.said] if best.said else []


def write_build(
    path: Path, fused: IRModule, source: Source, target: str, who: SideName, *, database: Any | None = None
) -> None:
    """Compiles a fused network into `path`.so, with its code for a GPU and its weights behind the library, and writes
    its side file. In a tuned build, and in each one for a GPU, kernels without a schedule get one by rule.

    `database`: MetaSchedule's database with further schedules.
    """
    tvm_target = candidate_build.load_target(target)
    schedules: dict[str, str] = {}
    roundings: dict[str, int] = {}
    weights: list[Array] = []
    with tvm_target, database or ms.database.MemoryDatabase(), tvm.transform.PassContext(opt_level=3):
        rules_for = tvm_target if who.build == TUNED or targets.is_gpu(tvm_target) else None
        scheduled = _pipeline(rules_for, schedules, roundings if who.build == UNSCHEDULED else None)
        pipeline = tvm.transform.Sequential([scheduled, outside_weights.taken_into(weights)])
        executable = relax.build(fused, target=tvm_target, relax_pipeline=pipeline, tir_pipeline=lowering.install())
    triple, library = targets.triple_of(target), path.with_name(f"{path.name}.so")
    if arch := targets.arch_of(target):
        code = cuda_code.of_library(executable.mod, arch)
    executable.export_library(str(library), fcompile=toolchain.exporter(triple))
    if arch:
        cuda_code.append_to(library, code)
    side = SideFile(
        library=outside_weights.part_of(library), weights=outside_weights.append_to(library, weights),
        format=FORMAT, name=who.name, build=who.build, inputs=source.inputs,
        outputs=_outputs(fused, source.outputs), target=json.loads(target), versions=versions(), kernels=schedules,
        features=targets.needed(target), integers=source.integers, roundings=roundings, about=source.about,
    )  # fmt: skip
    text = msgspec.json.format(msgspec.json.encode(side), indent=2)
    path.with_name(f"{path.name}.json").write_bytes(text + b"\n")


def versions() -> dict[str, str]:
    """Returns the versions of the toolchain."""
    found = {}
    for package in ("autosched", "apache-tvm", "apache-tvm-ffi"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class Applied(Struct, frozen=True):
    """A schedule of a task, with the functions of the kernels to which it was applied."""

    task: int
    candidate: bytes
    functions: dict[str, Any | None]
    """Function by `hash_of` the kernel's program; None if the schedule does not apply to it."""

    def to(self, kernel: IRModule) -> PrimFunc | None:
        """Returns the function of a kernel of the task under the schedule; None if the schedule does not apply to
        it."""
        if (key := task_extraction.hash_of(kernel)) not in self.functions:
            try:
                self.functions[key] = candidate_build.scheduled(kernel, self.candidate)["main"]
            except Exception:  # TVM raises various exceptions; the kernel gets a schedule by rule
                self.functions[key] = None
        return self.functions[key]


def applied(choices: Sequence[TaskSchedules]) -> tuple[dict[str, Applied], list[str]]:
    """Returns the best schedule of each task that applies, by hash of the workload; and notes about tasks without
    one."""
    schedules = {}
    notes = []
    for choice in choices:
        if not choice.candidates:
            continue
        workload = candidate_build.load_task(choice.workload)
        for candidate in choice.candidates:
            try:
                function = candidate_build.scheduled(workload, candidate)["main"]
            except Exception:  # a schedule of another network may not fit; the next best may
                continue
            known = {task_extraction.hash_of(workload): function}
            schedules[task_extraction.workload_hash(workload)] = Applied(choice.task, candidate, known)
            break
        else:
            notes.append(f"task {choice.task}: no recorded schedule applies; it is compiled without one")
    return schedules, notes


def _pipeline(
    by_rule: Target | None = None, schedules: dict[str, str] | None = None, roundings: dict[str, int] | None = None
) -> Pass:
    """Returns the passes from schedules to a lowered Relax program; fusion was done before.

    `by_rule`: target for which kernels without a schedule get one by rule; None: only join the stages of kernels with
    several. `schedules`: receives the source of each kernel's schedule. `roundings`: receives the number of
    roundings of each kernel that has several; then kernels are compiled in a plain reference form, with which those
    that have rules are compared.
    """
    passes = relax.transform
    if by_rule is not None:
        schedule = rules.with_rules(by_rule)
    else:
        schedule = rules.with_joined_stages() if roundings is None else rules.with_plain_sums()
    steps = [
        passes.MetaScheduleApplyDatabase(),
        *([rules.with_views()] if roundings is not None or by_rule is not None else []),
        passes.RewriteDataflowReshape(),
        passes.ToNonDataflow(),
        passes.RemovePurityChecking(),
        passes.CallTIRRewrite(),
        concats.in_place(),
        schedule,
        passes.StaticPlanBlockMemory(),
        passes.LowerAllocTensor(),
        passes.KillAfterLastUse(),
        passes.LowerRuntimeBuiltin(),
        passes.ComputePrimValue(),
        passes.VMShapeLower(),
        passes.AttachGlobalSymbol(),
    ]

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def lower(module: IRModule, _context: object) -> IRModule:
        lowered = tvm.transform.Sequential(steps)(module)
        if schedules is not None:
            for variable, function in lowered.functions_items():
                if isinstance(function, tvm.tirx.PrimFunc):
                    schedules[str(variable.name_hint)] = rules.schedule_of(function)
                    if roundings is not None and (number := roundings_of(function)):
                        roundings[str(variable.name_hint)] = number
        return lowered

    return lower


def untuned_pipeline() -> Pass:
    """Returns the passes of a build without schedules."""
    return _pipeline()


def _outputs(fused: IRModule, names: Sequence[str]) -> tuple[Tensor, ...]:
    """Returns the outputs with TVM's shapes and types, and the model's names."""
    returned = fused["main"].ret_ty
    fields = returned.fields if hasattr(returned, "fields") else [returned]
    return tuple(
        Tensor(name, tuple(int(d) for d in field.shape), str(field.dtype))
        for name, field in zip(names, fields, strict=True)
    )
