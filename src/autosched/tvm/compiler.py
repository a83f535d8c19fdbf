"""Compiles a whole network, with the best schedule of each task or with none. Runs in a child process."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import onnx
import tvm
from msgspec import Struct
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from autosched.tvm import building, graph, importer, ranges, toolchain
from autosched.tvm.module import SideFile, Tensor
from autosched.tvm.orders import Choice, Compiled

FORMAT = 1


class SideName(Struct, frozen=True):
    """What a side file says of its library."""

    name: str
    build: str


def compile_network(model: str, target: str, choices: Sequence[Choice], folder: str, name: str) -> Compiled:
    """Leave default.so and tuned.so in the folder, each with its side file."""
    tvm_target = tvm.target.Target(json.loads(target))
    onnx_model = onnx.load(model)
    fused = importer.network(onnx_model, tvm_target)
    chosen, notes = _database(choices, tvm_target)
    tuned = len(choices) - len(notes)
    for build, database in (("default", ms.database.MemoryDatabase()), ("tuned", chosen)):
        kind = build if tuned else "default"
        write_build(Path(folder) / build, fused, onnx_model, target, database, SideName(name, kind))
    return Compiled(tasks=tuned, notes=tuple(notes))


def write_build(path: Path, fused: Any, onnx_model: Any, target: str, database: Any, who: SideName) -> None:
    """Compile a fused network with the schedules of a database into `path`.so, and its side file."""
    tvm_target = tvm.target.Target(json.loads(target))
    with tvm_target, database, tvm.transform.PassContext(opt_level=3):
        executable = relax.build(fused, target=tvm_target, relax_pipeline=_pipeline())
    executable.export_library(f"{path}.so", fcompile=toolchain.link)
    side = SideFile(
        format=FORMAT, name=who.name, build=who.build, inputs=_inputs(onnx_model), outputs=_outputs(fused, onnx_model),
        target=json.loads(target), versions=versions(),
    )  # fmt: skip
    text = msgspec.json.format(msgspec.json.encode(side), indent=2)
    path.with_name(f"{path.name}.json").write_bytes(text + b"\n")


def versions() -> dict[str, str]:
    """What it was compiled with."""
    found = {}
    for package in ("autosched", "apache-tvm", "apache-tvm-ffi"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _database(choices: Sequence[Choice], target: Any) -> tuple[Any, list[str]]:
    """The best schedule of each task that applies, and what did not."""
    database = ms.database.MemoryDatabase()
    notes = []
    for choice in choices:
        workload = building.load_task(choice.workload)
        for candidate, latency_s in zip(choice.candidates, choice.latencies_s, strict=True):
            try:
                trace = building.replay(workload, candidate).trace
            except Exception:  # a schedule from elsewhere may not fit; the next best may
                continue
            args = ms.arg_info.ArgInfo.from_entry_func(workload, remove_preproc=True)
            own = database.commit_workload(workload)
            database.commit_tuning_record(ms.database.TuningRecord(trace, own, [latency_s], target, args))
            break
        else:
            notes.append(f"task {choice.task}: no recorded schedule applies; it is compiled without one")
    return database, notes


def _pipeline() -> Any:
    """Schedules by the database, then what each Relax program goes through; fusion is done already."""
    passes = relax.transform
    steps = [
        passes.MetaScheduleApplyDatabase(),
        passes.RewriteDataflowReshape(),
        passes.ToNonDataflow(),
        passes.RemovePurityChecking(),
        passes.CallTIRRewrite(),
        passes.StaticPlanBlockMemory(),
        passes.LowerAllocTensor(),
        passes.KillAfterLastUse(),
        passes.LowerRuntimeBuiltin(),
        passes.ComputePrimValue(),
        passes.VMShapeLower(),
        passes.AttachGlobalSymbol(),
    ]

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def lower(module: Any, _context: Any) -> Any:
        return tvm.transform.Sequential(steps)(module)

    return lower


def _inputs(model: Any) -> tuple[Tensor, ...]:
    highs = ranges.highs(model)
    return tuple(
        Tensor(v.name, tuple(d or 1 for d in graph.dims_of(v) or ()), graph.dtype_of(v), highs[v.name])
        for v in graph.inputs_of(model)
    )


def _outputs(fused: Any, model: Any) -> tuple[Tensor, ...]:
    """Shapes and types as TVM has them; the names are the model's."""
    returned = fused["main"].ret_ty
    fields = returned.fields if hasattr(returned, "fields") else [returned]
    return tuple(
        Tensor(value.name, tuple(int(d) for d in field.shape), str(field.dtype))
        for value, field in zip(model.graph.output, fields, strict=True)
    )
