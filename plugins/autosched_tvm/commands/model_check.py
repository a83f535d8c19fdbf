"""``python -m autosched_tvm.commands.model_check MODEL [--shape NAME=1,3,224,224]``: the tasks of a model, as JSON."""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from autosched.errors import AutoschedError, RequestError


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object; returns 0 if the model can be tuned."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.model_check", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,224,224")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--inputs", default="", metavar="FILE.npz")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(argv)
    try:
        with quiet():
            answer = {
                "ok": True,
                **check(args.model, read_shapes(args.shape), args.target, args.inputs, args.unverified),
            }
    except AutoschedError as error:
        answer = {"ok": False, "code": error.code, "error": str(error)}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def check(
    path: Path, shapes: dict[str, tuple[int, ...]], target: str, samples: str = "", unverified: bool = False
) -> dict[str, Any]:
    """Kind of file, inputs, fixes, tasks and skipped operators. `samples`: file of inputs; empty: they are generated.
    `unverified`: accept a network that no other engine can run. Raises ModelRejected or RequestError."""
    from autosched_tvm.compile import intrinsics, model_sources, network_import, onnx_import, targets, task_extraction
    from autosched_tvm.compile.candidate_build import load_target
    from autosched_tvm.compile.integers import dot_instructions
    from autosched_tvm.evaluation import operator_check

    intrinsics.install()
    aim = load_target(targets.resolve(target, 1))
    ready = model_sources.prepare(path, shapes, integers=dot_instructions.of_target(aim) is not None)
    extracted, _ = task_extraction.extract([onnx_import.fused(ready.source.cleaned(aim), aim)], aim)
    network_import.check(extracted)
    began_at = time.perf_counter()
    operator_check.check_source(path, ready.source, aim, samples, unverified=unverified)
    return {
        "operators_checked_s": round(time.perf_counter() - began_at, 3),
        "model": str(path),
        "format": ready.format,
        "opset": ready.opset,
        "nodes_before": ready.nodes_before,
        "nodes_after": ready.nodes_after,
        "inputs": [
            {"name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype} for tensor in ready.source.inputs
        ],
        "fixes": ready.fixes,
        "tasks": [
            {"name": t.name, "shape": t.shape, "uses": t.weight, "flops": t.flops, "workload": t.workload}
            for t in extracted.tasks
        ],
        "uses": extracted.uses,
        "skipped": [{"name": s.name, "reason": s.reason} for s in extracted.skipped],
        "work_share": extracted.share,
    }


def read_shapes(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse ``NAME=1,3,224,224``. Raises RequestError."""
    shapes = {}
    for text in given:
        name, _, numbers = text.rpartition("=")
        try:
            shapes[name] = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            raise RequestError(f"--shape {text} is not of the form NAME=1,3,224,224") from None
        if not name:
            raise RequestError(f"--shape {text} names no input; write NAME={numbers}")
    return shapes


@contextlib.contextmanager
def quiet() -> Iterator[TextIO]:
    """Keep output of TVM and its libraries, from C++ too, off both standard streams; yields the standard output."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with os.fdopen(kept[0], "w", buffering=1, closefd=False) as out:
            yield out
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
