"""``python -m autosched_tvm.commands.model_cut MODEL HEAD REST [--at TENSOR]``: cuts a model in two, as JSON."""

import argparse
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autosched.errors import AutoschedError, ModelRejected, RequestError
from autosched_tvm.commands.model_check import check, quiet, read_shapes


def main(argv: Sequence[str] | None = None) -> int:
    """Write two files and print one JSON object; returns 0 if the model was cut."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.model_cut", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("rest", type=Path)
    parser.add_argument("--at", action="append", default=[], metavar="TENSOR")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,224,224")
    parser.add_argument("--target", default="auto")
    args = parser.parse_args(argv)
    try:
        with quiet():
            shapes = read_shapes(args.shape)
            answer = {"ok": True, **cut(args.model, args.head, args.rest, args.at, shapes, args.target)}
    except AutoschedError as error:
        answer = {"ok": False, "code": error.code, "error": str(error)}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def cut(
    path: Path, head: Path, rest: Path, names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], target: str
) -> dict[str, Any]:
    """Writes both parts. `names`: values to cut behind; empty: before what cannot be tuned. Raises ModelRejected and
    RequestError."""
    import onnx

    from autosched_tvm.compile.frontend import model_cut, preparation
    from autosched_tvm.compile.frontend.model_file import FileKind, kind_of_file

    if kind_of_file(path) is not FileKind.OTHER:
        raise RequestError(f"{path.name} is no ONNX file: only those can be cut")
    whole = preparation.with_fixed_shapes(path, shapes)
    with tempfile.TemporaryDirectory(prefix="autosched-cut-") as folder:
        trial = Path(folder) / "head.onnx"

        def refusal(model: Any) -> ModelRejected | None:
            onnx.save(model, str(trial))
            try:
                check(trial, {}, target)
            except ModelRejected as error:
                return error
            return None

        made = model_cut.at(whole, names) if names else model_cut.before_refused(whole, refusal)
    for model, file in ((made.head, head), (made.rest, rest)):
        onnx.save(model, str(file))
    return {
        "why": made.why,
        "head": _told(made.head),
        "rest": _told(made.rest),
        "equal": _equal(path, whole, head, rest),
    }


def _told(model: Any) -> dict[str, Any]:
    return {
        "nodes": len(model.graph.node),
        "operators": dict(Counter(node.op_type for node in model.graph.node).most_common()),
        "inputs": [value.name for value in model.graph.input],
        "outputs": [value.name for value in model.graph.output],
    }


def _equal(path: Path, whole: Any, head: Path, rest: Path) -> bool | None:
    """Whether ONNX Runtime computes the same by the two parts as by the file; None where it cannot run one of them."""
    from autosched_tvm.compile.frontend import input_ranges
    from autosched_tvm.evaluation.onnx_reference import session_of
    from autosched_tvm.generated_inputs import random_inputs

    def run(file: Path, values: Mapping[str, Any]) -> dict[str, Any]:
        import onnxruntime

        session = session_of(str(file), onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
        given = {one.name: values[one.name] for one in session.get_inputs()}
        return dict(zip([one.name for one in session.get_outputs()], session.run(None, given), strict=True))

    inputs = random_inputs(input_ranges.inputs(whole), 0)
    expected, found = None, dict[str, Any]()
    with contextlib.suppress(Exception):  # its errors have no common class
        expected = run(path, inputs)
        found = run(head, inputs)
        found |= run(rest, inputs | found)
    if expected is None:
        return None
    return all(name in found and _alike(right, found[name]) for name, right in expected.items())


def _alike(right: Any, got: Any) -> bool:
    import numpy as np

    if isinstance(right, list):  # a sequence
        return len(right) == len(got) and all(_alike(*pair) for pair in zip(right, got, strict=True))
    right, got = np.asarray(right), np.asarray(got)
    if right.dtype.kind != "f" or right.shape != got.shape:
        return bool(np.array_equal(right, got))
    return bool(np.allclose(got, right, rtol=1e-3, atol=1e-5, equal_nan=True))


if __name__ == "__main__":
    sys.exit(main())
