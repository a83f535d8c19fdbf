"""Runs one case in a child process forked from a warm one: import, tasks, compilation without schedules, inference."""

import os
import resource
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from msgspec import Struct
from onnx import numpy_helper

import fakecuda
from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile import (
    candidate_build,
    kept_network,
    model_sources,
    network_compiler,
    targets,
    task_extraction,
)
from autosched_tvm.compile.integers import dot_instructions
from autosched_tvm.compile.kept_network import LoadedNetwork
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.layout_variants import offered
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.device.place import place_of
from autosched_tvm.rounding import EPSILON
from autosched_tvm.worker_messages import Compilation, OwnGpu
from onnx_suite.cases import Case

LIMIT_S = 60.0
"""Maximum seconds of one case."""
LOOK_S = 0.02
"""Seconds between two checks whether a child has ended."""
ROUNDING = 1e-4
"""Maximum error, as a share of the largest value, of numbers outside of the suite's tolerance that are rounded
otherwise."""
HALF_STEPS = 4
"""Maximum error of 16-bit floats, in steps of their largest value."""
SAID_MAX = 300
"""Maximum characters of a message that is kept."""
FAKE_GPU = fakecuda.Machine.uuid(0)
"""The GPU on which cases run that are compiled for one."""
AS_IT_IS, CONSTANT = "A", "B"
"""Forms of a case: as it is, or with all inputs but the first as initializers, as exporters write them."""


class Result(Struct, frozen=True):
    """Result of a case: pass, rounding, type, shape, wrong, refused, error, crash or hang."""

    status: str
    said: str = ""
    at: str = ""
    """The stage, or the place in the source, where it ended."""


def attempt(case: Case, form: str, target: str) -> Result:
    """Runs a case in a form, in a child process."""
    return in_child(lambda folder: _run(case, form, target, folder))


def in_child(work: Callable[[Path], Result]) -> Result:
    """Does work in a child process, with a folder of its own. The caller must have no other threads."""
    with tempfile.TemporaryDirectory(prefix="autosched-case-") as folder:
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(read)
            _child(work, Path(folder), write)
        os.close(write)
        data, status = _answer(read, pid)
        os.close(read)
    if status is None:
        return Result("hang", f"longer than {LIMIT_S:g} s")
    if data:
        return msgspec.json.decode(data, type=Result)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return Result("crash", signal.Signals(number).name if number else f"exit code {os.WEXITSTATUS(status)}")


def _answer(read: int, child: int) -> tuple[bytes, int | None]:
    """Output of a child, and how it ended; None if it takes too long. Its pipe may stay open longer, in others."""
    data, until, ended = b"", time.monotonic() + LIMIT_S, 0
    while time.monotonic() < until:
        if not ended:
            ended, status = os.waitpid(child, os.WNOHANG)
        if select.select([read], [], [], 0.0 if ended else LOOK_S)[0] and (part := os.read(read, 1 << 16)):
            data += part
        elif ended:
            return data, status
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return data, None


def _child(work: Callable[[Path], Result], folder: Path, pipe: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        result = work(folder)
    except (ModelRejected, RequestError) as error:
        result = Result("refused", str(error)[:SAID_MAX])
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "autosched_tvm" in frame.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        result = Result("error", f"{type(error).__name__}: {error}"[:SAID_MAX], place)
    os.write(pipe, msgspec.json.encode(result))
    os._exit(0)


def in_form(case: Case, form: str) -> tuple[Any, list[dict[str, Any]]] | None:
    """The model in a form, and its samples by name; None if the form is the other one."""
    model = onnx.load_model_from_string(case.model)
    known = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in known]
    names = [value.name for value in values]
    samples = [dict(zip(names, given, strict=False)) for given, _ in case.samples]
    if form == AS_IT_IS:
        return model, samples
    constant = [
        v for v in values[1:] if v.type.HasField("tensor_type") and isinstance(samples[0].get(v.name), np.ndarray)
    ]
    if not constant:
        return None
    for value in constant:
        model.graph.initializer.append(numpy_helper.from_array(samples[0].pop(value.name), value.name))
        model.graph.input.remove(value)
    model.ir_version = max(model.ir_version, 4)
    return model, samples[:1]


def open_shapes(model: Any, sample: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs that the model leaves open."""
    found = {}
    for value in model.graph.input:
        tensor, array = value.type.tensor_type, sample.get(value.name)
        if isinstance(array, np.ndarray) and value.type.HasField("tensor_type"):
            fixed = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
            if not fixed:
                found[value.name] = array.shape
    return found


def _run(case: Case, form: str, target: str, folder: Path) -> Result:
    made = in_form(case, form)
    assert made is not None
    model, samples = made
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    aim = candidate_build.load_target(target)
    ready = model_sources.prepare(
        path, open_shapes(model, samples[0]), integers=dot_instructions.of_target(aim) is not None
    )
    prepared = folder / "prepared.onnx"
    ready.source.save(prepared)
    cleaned = ready.source.cleaned(aim)
    offer = offered(cleaned, aim, LayoutOption.KEEP, winograd=False)
    task_extraction.extract([variant.fused for variant in offer.variants], aim)
    network = LoadedNetwork(ready.source, cleaned, offer)
    kept_network.keep(str(prepared), target, LayoutOption.KEEP, network, winograd=False)
    wanted = Compilation(str(prepared), target, str(folder), "case", LayoutOption.KEEP, untuned=False)
    network_compiler.compile_network(wanted, [])
    worst = Result("pass")
    with place_of(OwnGpu(FAKE_GPU) if targets.arch_of(target) else None) as place:
        module = LoadedModule(folder / network_compiler.TUNED, place=place)
        inputs = {tensor.name for tensor in module.info.inputs}
        for sample, (_, expected) in zip(samples, case.samples, strict=False):
            outputs = module.run({name: array for name, array in sample.items() if name in inputs})
            found = compared(expected, outputs, case)
            worst = max(worst, found, key=lambda one: SEVERITY.index(one.status))
    return worst


SEVERITY = ("pass", "rounding", "type", "shape", "wrong")


def compared(expected: list[Any], outputs: list[Any], case: Case) -> Result:
    """Compares outputs as the suite does: shapes, types, and numbers within the case's tolerances."""
    if len(expected) != len(outputs):
        return Result("shape", f"{len(outputs)} outputs, not {len(expected)}")
    worst = Result("pass")
    for number, (right, got) in enumerate(zip(expected, outputs, strict=True)):
        found = _one(right, got, case, f"output {number}")
        worst = max(worst, found, key=lambda one: SEVERITY.index(one.status))
    return worst


def _one(right: Any, got: Any, case: Case, name: str) -> Result:
    if isinstance(right, list) or right is None:
        return Result("shape", f"{name}: a tensor, not a sequence")
    right, got = np.asarray(right), np.asarray(got)
    if right.shape != got.shape:
        return Result("shape", f"{name}: {got.shape}, not {right.shape}")
    if right.dtype != got.dtype:
        return Result("type", f"{name}: {got.dtype}, not {right.dtype}")
    if right.dtype.kind in "OUS":
        return Result("pass" if np.array_equal(right, got) else "wrong", name)
    a, b = (array if array.dtype.kind in "bc" else array.astype("float64") for array in (right, got))
    with np.errstate(all="ignore"):
        fine = np.isclose(b, a, rtol=case.relative, atol=case.absolute, equal_nan=True)
        if fine.all():
            return Result("pass")
        apart, scale = (
            np.abs(b.astype("float64") - a.astype("float64")),
            float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))),
        )
        near = a.dtype.kind == "f" and bool(np.all(fine | (apart <= ROUNDING * scale)))
        at = tuple(int(i) for i in np.argwhere(~fine)[0])
    wanted = f"{name}: {int((~fine).sum())} of {fine.size} differ; at {at} {b[at]!s:.12}, not {a[at]!s:.12}"
    half = right.dtype.itemsize == 2 and bool(
        np.all(fine | (apart <= HALF_STEPS * EPSILON.get(right.dtype.name, 0.0) * scale))
    )
    return Result("rounding" if near or half else "wrong", wanted)
