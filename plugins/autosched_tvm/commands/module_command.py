"""Uses a compiled network and prints JSON, in a separate process, because TVM may crash.

``python -m autosched_tvm.commands.module_command run|evaluate|check|info MODULE``
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from autosched.backend import Evaluation, Lease
from autosched.errors import AutoschedError, RequestError
from autosched.process.forked_workers import Raised, WorkerError, Workers, prepare
from autosched_tvm import worker_messages
from autosched_tvm.compile.side_file import side_of
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.device.place import place_of
from autosched_tvm.evaluation import input_samples, module_comparison, padding_check
from autosched_tvm.evaluation.build_comparison import check
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark
from autosched_tvm.evaluation.verification_messages import Request
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Array, Tensor, describe
from autosched_tvm.worker_failures import gist
from autosched_tvm.worker_messages import OwnGpu

CHECK_EXTRA_S = 50.0
"""Maximum seconds to simplify the model and load all engines, besides the measurement; the calling process has a
deadline too."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run, time or check a module; print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.module_command", description=__doc__)
    parser.add_argument("action", choices=("run", "evaluate", "check", "info", "pad", "compare"))
    parser.add_argument("module", type=Path)
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]FILE.npy")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="samples of inputs; the first one is timed")
    parser.add_argument("--tolerance", type=float, help="what `check` allows, as a share of an output's largest value")
    parser.add_argument("--model", type=Path, help="what `check` compares with")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where `run` leaves one .npy per output")
    parser.add_argument("--cores", default="", metavar="0,1")
    parser.add_argument("--gpu", default="", metavar="UUID", help="where a module for GPUs runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--other", type=Path, help="the module that `compare` compares with")
    parser.add_argument("--least", type=int, default=1, help="the smallest size that `pad` is asked for")
    parser.add_argument("--budget-s", type=float, default=5.0)
    parser.add_argument("--operators", action="store_true", help="`evaluate` the operators one by one too")
    args = parser.parse_args(argv)
    try:
        answer: dict[str, Any] = {"ok": True, **_answer(args)}
    except AutoschedError as error:
        answer = {"ok": False, "code": error.code, "error": str(error)}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def _answer(args: argparse.Namespace) -> dict[str, Any]:
    cores = tuple(int(core) for core in args.cores.split(",") if core)
    if cores:
        os.sched_setaffinity(0, cores)
    if args.action == "compare":
        return {"ratios": module_comparison.ratios(args.module, args.other, args.budget_s)}
    if args.action == "pad":
        found = padding_check.checked(args.module, args.model, args.least)
        return {"padding": None, "why": found} if isinstance(found, str) else {"padding": found.told(), "why": ""}
    if args.action == "check":
        side = side_of(args.module)
        evaluation = checked(args, _samples(args, side.inputs), cores)
        return {"module": msgspec.to_builtins(side), "evaluation": msgspec.to_builtins(evaluation)}
    if args.action == "info":
        return {"module": msgspec.to_builtins(side_of(args.module))}
    with place_of(OwnGpu(args.gpu) if args.gpu else None) as place:
        module = LoadedModule(
            args.module, threads=len(cores) or None if args.action == "evaluate" else None, place=place
        )
        return _run(args, module)


def _run(args: argparse.Namespace, module: LoadedModule) -> dict[str, Any]:
    info = msgspec.to_builtins(module.info)
    inputs = _samples(args, module.info.inputs)[0]
    if args.action == "evaluate":
        return {"module": info, **_measured(module, inputs, args.budget_s, operators=args.operators)}
    started = time.perf_counter()
    outputs = module.run(inputs)
    return {"module": info, "seconds": time.perf_counter() - started, "outputs": _saved(module, outputs, args.output)}


def _measured(module: LoadedModule, inputs: Mapping[str, Array], budget_s: float, *, operators: bool) -> dict[str, Any]:
    """The latency; with `operators`, measured in half of the time, and their times in the other half."""
    if operators and module.place.on_gpu:
        raise RequestError("the times of single operators are measured on CPUs alone: leave --operators out")
    if not operators:
        return {"timing": msgspec.to_builtins(module.evaluate(inputs, budget_s=budget_s))}
    from autosched_tvm.device.operator_profiling import measured

    timing = module.evaluate(inputs, budget_s=budget_s / 2)
    times = measured(module, inputs, budget_s / 2)
    return {"timing": msgspec.to_builtins(timing), "operators": msgspec.to_builtins(times)}


def checked(args: argparse.Namespace, given: Sequence[Mapping[str, Array]], cores: tuple[int, ...]) -> Evaluation:
    """Compare a module with its model in ONNX Runtime, each in a separate process. Raises RequestError."""
    prepare(worker_messages.PRELOAD)
    timeout_s = args.budget_s + CHECK_EXTRA_S
    shapes = {name: tuple(array.shape) for name, array in given[0].items()}
    with tempfile.TemporaryDirectory(prefix="autosched-check-") as folder:
        workers = Workers(Path(folder), recycle_after=1)
        gpu = OwnGpu(args.gpu) if args.gpu else None
        lease = Lease("evaluate", ("gpu",) if gpu else (), cores, timeout_s, gpu=args.gpu)
        try:
            forms = workers.once(lease, worker_messages.FORMS, str(args.model), shapes, folder, timeout_s=timeout_s)
            request = Request(tuple(form.path for form in forms), max(1, len(cores)), "", args.tolerance, gpu)
            judged = (str(args.module), request, [dict(one) for one in given])
            verdict = workers.once(lease, worker_messages.VERIFY_MODULE, *judged, timeout_s=timeout_s)
            with EngineBenchmark(workers, lease, gpu) as contest:
                return check(contest, args.module, forms, given[0], verdict, args.budget_s)
        except Raised as error:
            raise RequestError(
                str(error) if error.kind == "RequestError" else f"{error.kind}: {gist(error)}"
            ) from error
        except WorkerError as error:
            raise RequestError(f"{args.module.name} crashed: {error}") from error


def _samples(args: argparse.Namespace, wanted: Sequence[Tensor]) -> Sequence[Mapping[str, Array]]:
    """The user's samples of inputs, or generated ones. Raises RequestError."""
    if args.inputs is not None and args.input:
        raise RequestError("--input and --inputs both give inputs: leave one of them out")
    if args.input:
        return [read_inputs(args.input, wanted, args.seed)]
    return input_samples.of(wanted, str(args.inputs or ""), args.seed)


def read_inputs(given: Sequence[str], wanted: Sequence[Tensor], seed: int) -> Mapping[str, Array]:
    """Arrays from ``NAME=FILE.npy`` (the name may be omitted for a single input); random without any."""
    if not given:
        return random_inputs(wanted, seed)
    arrays = {}
    for text in given:
        name, equals, file = text.rpartition("=")
        if not equals and len(wanted) != 1:
            raise RequestError(
                f"--input {text}: say which input it is: --input NAME={text};"
                f" there are {', '.join(map(describe, wanted))}"
            )
        try:
            array = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RequestError(
                f"--input {text}: {file} is not a readable .npy file ({_why(error)}). Write it with numpy.save"
            ) from error
        if not isinstance(array, np.ndarray):
            raise RequestError(
                f"--input {text}: {file} holds several arrays ({', '.join(array)}). Write each to a file of its own"
                " with numpy.save, and name them one by one: --input NAME=FILE.npy"
            )
        arrays[name if equals else wanted[0].name] = array
    return arrays


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it holds no array of numbers" if "pickle" in str(error) else str(error)


def _saved(module: LoadedModule, outputs: Sequence[Array], folder: Path | None) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for tensor, array in zip(module.info.outputs, outputs, strict=True):
        file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            stem = "".join(c if c.isalnum() else "_" for c in tensor.name)
            file = folder / f"{stem}.npy"
            if str(file) in (one["file"] for one in said):  # "a:0" and "a/0" are two outputs
                file = folder / f"{stem}_{len(said)}.npy"
            np.save(file, array)
        said.append({
            "name": tensor.name, "shape": list(array.shape), "dtype": str(array.dtype),
            "file": str(file) if file else None, "first": [float(v) for v in array.reshape(-1)[:5]],
        })  # fmt: skip
    return said


if __name__ == "__main__":
    sys.exit(main())
