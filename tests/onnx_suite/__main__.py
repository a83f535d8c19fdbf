"""Runs the suite, or some cases of it, and compares the results with the committed ones.

`python -m onnx_suite [--cases WORDS] [--write]`, with tests/ on the path.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a child forked from a process with threads may hang

import argparse
import multiprocessing
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import fakecuda
from autosched_tvm import worker_preload
from autosched_tvm.compile import targets
from onnx_suite import by_command, opset_cases, page, table
from onnx_suite.case_run import AS_IT_IS, CONSTANT, Result, attempt, compared, in_child, in_form
from onnx_suite.cases import Case, all_cases
from onnx_suite.table import Row

SAY_EVERY = 100
GPU_TARGET = "cuda -arch=sm_90"
_cases: Sequence[Case] = ()
"""The cases to run, which the forked workers inherit."""


def by_runtime(case: Case) -> Result:
    """Result of a case in ONNX Runtime, which starts threads."""
    import onnxruntime

    made = in_form(case, AS_IT_IS)
    assert made is not None
    model, samples = made
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    model.ir_version = min(model.ir_version, 13)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        known = {one.name for one in session.get_inputs()}
        for sample, (_, expected) in zip(samples, case.samples, strict=True):
            got = session.run(None, {name: array for name, array in sample.items() if name in known})
            found = compared(expected, got, case)
            if found.status != "pass":
                return found
    except Exception:  # its errors have no common class
        return Result("error")
    return Result("pass")


def row_of(target: str, number: int) -> tuple[str, Row, dict[str, Result]]:
    """Runs a case in both forms."""
    case = _cases[number]
    found = {form: attempt(case, form, target) for form in (AS_IT_IS, CONSTANT) if in_form(case, form) is not None}
    statuses = {form: found[form].status if form in found else "-" for form in (AS_IT_IS, CONSTANT)}
    return case.name, Row(case.family, in_child(lambda _: by_runtime(case)).status, statuses), found


def _again_with_gpus() -> None:
    """Runs this program anew on a machine with fake GPUs, whose libraries are found when a process starts."""
    machine = fakecuda.Machine(Path(tempfile.mkdtemp(prefix="autosched-suite-")), "NVIDIA H200:90:141")
    os.execve(sys.executable, [sys.executable, "-m", "onnx_suite", *sys.argv[1:]], machine.environment())


def main() -> int:
    """Runs the cases; returns 1 if one became worse."""
    parser = argparse.ArgumentParser(prog="python -m onnx_suite", description=__doc__)
    parser.add_argument("--cases", default="", metavar="REGEX", help="only cases with such a name")
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth case")
    parser.add_argument("--details", action="store_true", help="say what is wrong with each case")
    parser.add_argument(
        "--commands", type=int, default=0, metavar="N", help="run N cases, drawn at random, by `model check` and `tune`"
    )
    parser.add_argument("--gpu", action="store_true", help="on a fake GPU; says which results are worse than the CPU's")
    parser.add_argument("--seed", type=int, default=0, help="the seed of this draw")
    parser.add_argument("--page", action="store_true", help="write docs/operators-supported.md, and run nothing")
    args = parser.parse_args()
    if args.page:
        page.PAGE.write_text(page.text(all_cases(), table.read()))
        return 0
    if args.gpu and "CUDA_FAKE" not in os.environ:
        _again_with_gpus()
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
    worker_preload.settle((0, 1))
    np.seterr(all="ignore")
    global _cases
    _cases = [case for case in (*all_cases(), *opset_cases.all_cases()) if re.search(args.cases, case.name)][
        :: args.every
    ]
    if args.commands:
        count = by_command.compare(random.Random(args.seed).sample(_cases, min(args.commands, len(_cases))))
        print("; ".join(f"{found}: {number}" for found, number in count.most_common()))
        return 0 if set(count) <= set(by_command.AGREED) else 1
    target = targets.resolve(GPU_TARGET if args.gpu else "auto", 2)
    rows: dict[str, Row] = {}
    started = time.monotonic()

    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        for name, row, found in pool.map(partial(row_of, target), range(len(_cases))):
            rows[name] = row
            for form, result in found.items():
                if args.details and result.status != "pass":
                    print(f"{name} ({form}): {result.status} {result.at} {result.said}", flush=True)
            if len(rows) % SAY_EVERY == 0:
                took_s = time.monotonic() - started
                print(f"{len(rows)} of {len(_cases)} cases, {took_s:.0f} s", file=sys.stderr, flush=True)
    print(table.summary(rows.values()))
    before = table.read() if table.RESULTS.exists() else {}
    if args.write:
        table.write(before | rows)
        return 0
    for line in (lost := table.worse(before, rows)):
        print(f"worse: {line}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
