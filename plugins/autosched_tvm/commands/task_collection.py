"""``python -m autosched_tvm.commands.task_collection MODEL OUT [--change 'batch=4 resolution=0.75']...``: a network's
tasks in several sizes.

The model is imported once. OUT gets a `Taken` for each size, in MessagePack; the answer on stdout is JSON. Without
MODEL and OUT, only the properties that tasks depend on are printed: target, layout and versions of the importer.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from autosched.errors import AutoschedError, ModelRejected, RequestError
from autosched.model import PROGRAM_BYTES
from autosched.recordstore.keys import split_target
from autosched.task_bundle import BundledTask, Change, Taken
from autosched_tvm.commands.model_check import quiet, read_shapes
from autosched_tvm.tuning import options
from autosched_tvm.tvm_types import IRModule


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object; returns 0 if the model can be imported."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.task_collection", description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,224,224")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--backend", default="autotvm")
    parser.add_argument("--change", action="append", default=[], metavar="'batch=4 resolution=0.75'")
    args = parser.parse_args(argv)
    try:
        with quiet():
            if args.model is None:
                answer = scope(args.target, args.backend)
            else:
                answer = {"ok": True}
                changes = [Change.read(text) for text in args.change]
                found = collect(args.model, read_shapes(args.shape), args.target, args.backend, changes)
                args.out.write_bytes(msgspec.msgpack.encode(found))
    except AutoschedError as error:
        answer = {"ok": False, "code": error.code, "error": str(error)}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def scope(target: str, backend: str) -> dict[str, Any]:
    """Target and layout of tasks, and versions of the importer. Raises RequestError."""
    from autosched_tvm.compile import targets, toolchain
    from autosched_tvm.source_fingerprint import fingerprint_of

    defaults = _defaults(backend)
    layout = f"{defaults.layout.value}{', winograd' if defaults.winograd else ''}"
    importer = f"{toolchain.program_form()}, import {fingerprint_of('autosched_tvm.compile')}"
    return {"ok": True, "target": split_target(targets.resolve(target, 1))[0], "layout": layout, "importer": importer}


def collect(
    path: Path, shapes: dict[str, tuple[int, ...]], target: str, backend: str, changes: Sequence[Change]
) -> list[Taken]:
    """The tasks of a network in its own size and in others, with their programs. An impossible size has a reason
    instead. Raises ModelRejected for a network that cannot be imported at all, and RequestError."""
    from autosched_tvm.compile import intrinsics, model_sources, targets
    from autosched_tvm.compile.candidate_build import load_target
    from autosched_tvm.compile.integers import dot_instructions

    defaults = _defaults(backend)
    intrinsics.install()
    aim = load_target(targets.resolve(target, 1))
    integers = defaults.integers and dot_instructions.of_target(aim) is not None
    module = model_sources.prepare(path, shapes, integers=integers).source.cleaned(aim)
    found = []
    for change in changes:
        try:
            found.append(_taken(module, change, aim, defaults))
        except (ModelRejected, RequestError) as error:
            if not change.words:
                raise
            found.append(Taken(change, (), (), str(error)))
    return found


def _taken(module: IRModule, change: Change, aim: Any, defaults: options.Options) -> Taken:
    from autosched_tvm.compile import network_import, task_extraction, workload_program
    from autosched_tvm.compile.layouts.layout_variants import offered
    from autosched_tvm.compile.resized_network import resized

    network = resized(module, change)
    if change.words and network.module is module:  # the same as the size of the file
        return Taken(change, (), ())
    variants = offered(network.module, aim, defaults.layout, winograd=defaults.winograd).variants
    extracted, workloads = task_extraction.extract([variant.fused for variant in variants], aim)
    network_import.check(extracted)
    programs = (workload_program.of_module(workload) for workload in workloads)
    tasks = tuple(
        BundledTask(info.name, info.workload, info.shape, info.flops, info.weight, program)
        for info, program in zip(extracted.tasks, programs, strict=True)
        if len(program.content) <= PROGRAM_BYTES
    )
    return Taken(change, tuple(network.kept), tasks)


def _defaults(backend: str) -> options.Options:
    """Options of a job that names none. Raises RequestError for a backend without TVM."""
    if (kind := options.kind_of(backend)) is None:
        raise RequestError(f"backend {backend!r} does not work on TVM: tasks can be collected for backends on TVM only")
    return options.read(backend, kind, {})


if __name__ == "__main__":
    sys.exit(main())
