"""Takes a model in: prepares it, splits it into tasks, leaves both as files. Runs in a child process."""

from pathlib import Path

import msgspec

from autosched.errors import ModelRejected
from autosched.model import TASKS_MAX
from autosched_tvm.compile import intrinsics, model_sources, task_extraction
from autosched_tvm.compile.candidate_build import load_target
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.layout_variants import grouped, offered
from autosched_tvm.worker_messages import Extracted


def take_in(
    model: str,
    shapes: dict[str, tuple[int, ...]],
    target: str,
    prepared: str,
    folder: str,
    layout: str = LayoutOption.KEEP,
    winograd: bool = False,
) -> Extracted:
    """Write the prepared model and TASK.json for each workload. Raises ModelRejected."""
    intrinsics.install()
    ready = model_sources.prepare(Path(model), shapes)
    ready.source.save(Path(prepared))
    aim = load_target(target)
    variants = offered(ready.source.cleaned(), aim, LayoutOption(layout), winograd=winograd)
    extracted, workloads = task_extraction.extract([variant.fused for variant in variants], aim)
    check(extracted)
    for info, workload in zip(extracted.tasks, workloads, strict=True):
        task_extraction.save(workload, Path(folder) / f"{info.task}.json")
    return msgspec.structs.replace(extracted, tasks=grouped(variants, extracted.tasks), notes=tuple(ready.notes))


def check(extracted: Extracted) -> None:
    """Raise ModelRejected for a network with nothing to tune, or with more than can be handled."""
    if not extracted.tasks:
        names = ", ".join(f"{skipped.name} ({skipped.reason})" for skipped in extracted.skipped[:5]) or "none"
        raise ModelRejected(f"the model has no operator worth tuning. Its operators: {names}")
    if len(extracted.tasks) > TASKS_MAX:
        raise ModelRejected(f"the model has {len(extracted.tasks)} different operators; {TASKS_MAX} can be handled")
