"""Imports a model: prepares it, splits it into tasks, writes both to files. Runs in a child process."""

from pathlib import Path

import msgspec

from autosched import task_bundle
from autosched.errors import ModelRejected
from autosched.model import TASKS_MAX, TaskInfo
from autosched_tvm.compile import intrinsics, kept_network, model_sources, task_extraction, toolchain, workload_program
from autosched_tvm.compile.candidate_build import load_target
from autosched_tvm.compile.frontend.model_file import FileKind, kind_of_file
from autosched_tvm.compile.integers import dot_instructions
from autosched_tvm.compile.kept_network import LoadedNetwork
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.layout_variants import grouped, offered
from autosched_tvm.worker_messages import TEMPLATE, Extracted, Ways


def take_in(
    model: str, shapes: dict[str, tuple[int, ...]], target: str, prepared: str, folder: str, ways: Ways,
    keep: bool = False,
) -> Extracted:  # fmt: skip
    """Writes the prepared model, and TASK.json for each workload. Raises ModelRejected.

    `keep`: a compilation in this process follows. A file of collected tasks has no prepared model; its layouts were
    chosen when the tasks were collected.
    """
    if kind_of_file(Path(model)) is FileKind.TASKS:
        return _take_in_tasks(task_bundle.read(Path(model)), Path(folder))
    intrinsics.install()
    aim = load_target(target)
    integers = ways.integers and dot_instructions.of_target(aim) is not None
    ready = model_sources.prepare(Path(model), shapes, integers=integers)
    ready.source.save(Path(prepared))
    cleaned = ready.source.cleaned(aim)
    offer = offered(cleaned, aim, LayoutOption(ways.layout), winograd=ways.winograd)
    variants = offer.variants
    extracted, workloads = task_extraction.extract([variant.fused for variant in variants], aim)
    check(extracted)
    for info, workload in zip(extracted.tasks, workloads, strict=True):
        task_extraction.save(workload, Path(folder) / f"{info.task}.json")
    if keep:
        network = LoadedNetwork(ready.source, cleaned, offer)
        kept_network.keep(prepared, target, ways.layout, network, winograd=ways.winograd)
    return msgspec.structs.replace(extracted, tasks=grouped(variants, extracted.tasks), notes=tuple(ready.notes))


def _take_in_tasks(bundle: task_bundle.TaskBundle, folder: Path) -> Extracted:
    form = toolchain.program_form()
    if others := {task.program.form for task in bundle.tasks} - {form}:
        raise ModelRejected(
            f"the tasks were collected with {', '.join(sorted(others))}, and this is {form}. Collect them again:"
            "  autosched collect MODELS"
        )
    for number, task in enumerate(bundle.tasks, start=1):
        (folder / f"{number}.json").write_bytes(workload_program.text_of(task.program))
    infos = tuple(
        TaskInfo(
            task=number, name=one.name, workload=one.workload, weight=one.weight, flops=one.flops, shape=one.shape,
            template=TEMPLATE,
        )
        for number, one in enumerate(bundle.tasks, start=1)
    )  # fmt: skip
    return Extracted(infos, (), len(infos), 1.0, tasks_only=True)


def check(extracted: Extracted) -> None:
    """Raises ModelRejected for a network with nothing to tune, or with too many tasks."""
    if not extracted.tasks:
        names = ", ".join(f"{skipped.name} ({skipped.reason})" for skipped in extracted.skipped[:5]) or "none"
        raise ModelRejected(f"the model has no operator worth tuning. Its operators: {names}")
    if len(extracted.tasks) > TASKS_MAX:
        raise ModelRejected(f"the model has {len(extracted.tasks)} different operators; {TASKS_MAX} can be handled")
