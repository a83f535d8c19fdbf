"""Finds the template for a task by the computation of its kernel, or the reason why there is none."""

from dataclasses import dataclass

from autosched_backend_autotvm.templates import (
    convolution,
    depthwise,
    gpu,
    kernel_analysis,
    matmul,
    nchw_convolution,
    user_templates,
    winograd,
)
from autosched_backend_autotvm.templates.fused_kernel import prepare, understand
from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis, NotUnderstood
from autosched_backend_autotvm.templates.template import Machine, Template
from autosched_tvm.api import kernel_sketches, targets, winograd_kernel, winograd_workload
from autosched_tvm.tvm_types import IRModule, Target


@dataclass(frozen=True)
class Found:
    """The template for a task, or the reason why there is none."""

    template: Template | None
    why_not: str = ""


def find(workload: IRModule, target: Target) -> Found:
    """Returns the template for an IRModule with one PrimFunc "main", scheduled or not, and a TVM target."""
    if (template := user_templates.find(workload, target)) is not None:
        return Found(template)
    kind = str(target.kind.name)
    if kind not in ("llvm", "cuda"):
        return Found(None, f"no templates for targets of kind {kind}; there are templates for llvm and cuda")
    if winograd_workload.marked(workload) is not None:
        return _winograd(workload, target)
    if not kernel_sketches.has_root(workload["main"]):
        return Found(None, "it is one block without a root")
    if kernel_sketches.sampled(workload, 1) is not None:
        # templates would replace the CPU's instructions for 8-bit integers: they are 5 to 25 times as slow
        return Found(None, "its kernel has schedules of its own")
    try:
        found = understand(workload)
        _try(workload, found)
        return Found(gpu.template(found, target) if kind == "cuda" else _on_cpu(found, machine(target)))
    except NotUnderstood as error:
        return Found(None, str(error))


def _winograd(workload: IRModule, target: Target) -> Found:
    """Returns the template of a workload that is marked as a Winograd convolution."""
    if str(target.kind.name) != "llvm":
        return Found(None, "Winograd's algorithm has a template for CPUs only")
    try:
        return Found(winograd.template(workload, machine(target)))
    except winograd_kernel.NotExpandable as error:
        return Found(None, str(error))


def machine(target: Target) -> Machine:
    """Returns the properties of a CPU that templates use."""
    return Machine(
        targets.vector_bits(target) // 8,
        targets.vector_registers(target),
        int(target.attrs.get("num-cores", 1)),
    )


def _on_cpu(found: KernelAnalysis, cpu: Machine) -> Template:
    if found.kind in (kernel_analysis.MATMUL, kernel_analysis.BATCH_MATMUL):
        return matmul.template(found, cpu)
    if found.layout == "nchw":
        return nchw_convolution.template(found, cpu)
    if found.kind == kernel_analysis.DEPTHWISE:
        return depthwise.template(found, cpu)
    return convolution.template(found, cpu)


def _try(workload: IRModule, found: KernelAnalysis) -> None:
    """Raises NotUnderstood where the surroundings of the main computation cannot be fused with it."""
    from tvm import s_tir

    try:
        prepare(s_tir.Schedule(workload, debug_mask=0, enable_check=False), found)
    except s_tir.ScheduleError as error:
        last = str(error).strip().splitlines()[-1]
        raise NotUnderstood(f"what surrounds the main computation cannot be fused: {last}") from error
