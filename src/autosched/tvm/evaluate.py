"""Checks a compiled network's outputs and times its builds side by side. Runs in a child pinned to the device."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from autosched.backend import Evaluation, Timing
from autosched.errors import RequestError
from autosched.measured.statistics import clearly_faster, summarize
from autosched.tvm.comparison import compare
from autosched.tvm.module import Array, Module, random_inputs

BUDGET_S = 9.0
"""For all builds together, in equal shares: an untuned build may be thirty times slower than the others."""
ROUNDS_MIN = 3
ROUNDS_MAX = 60
SAMPLE_S = 0.02
"""A sample repeats the inference until it has run so long."""
SLOW_S = 2.0
"""A build this slow is measured ROUNDS_MIN times and no more."""
INPUT_SEED = 0


class Contestant(Struct):
    """One build under measurement."""

    name: str
    sample: Callable[[int], float]
    """Mean latency of a number of calls, in seconds."""
    number: int = 1
    once_s: float = 0.0
    """Latency of the first call; 0 while there was none."""
    samples_s: list[float] = []

    @property
    def spent_s(self) -> float:
        """What its samples took."""
        return self.number * sum(self.samples_s)


class Runtime:
    """ONNX Runtime on the original model, with one thread per core of the device."""

    def __init__(self, model: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        import onnxruntime

        self.version = str(onnxruntime.__version__)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_cpu_input(name, array)
        self._names = [output.name for output in self._session.get_outputs()]
        for name in self._names:
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)
        self.expected: list[Array] = [np.asarray(value) for value in self._binding.copy_outputs_to_cpu()]

    def sample(self, number: int) -> float:
        """Mean latency of `number` calls, in seconds."""
        started = time.perf_counter()
        for _ in range(number):
            self._session.run_with_iobinding(self._binding)
        return (time.perf_counter() - started) / number


def evaluate(builds: str, model: str, cores: tuple[int, ...], timeout_s: float) -> Evaluation:
    """Measure `builds`/default and `builds`/tuned against each other and ONNX Runtime; check the outputs."""
    notes: list[str] = []
    default, tuned = (Module(Path(builds) / name) for name in ("default", "tuned"))
    inputs = random_inputs(default.info.inputs, INPUT_SEED)
    runtime = _runtime(Path(model), max(1, len(cores)), inputs)
    if isinstance(runtime, str):
        notes.append(f"{runtime}: outputs are compared with the untuned build")
    reference = "the untuned build" if isinstance(runtime, str) else f"ONNX Runtime {runtime.version}"
    contestants = []
    results = {}
    for name, module in (("default", default), ("tuned", tuned)):
        started = time.perf_counter()
        results[name] = module.run(inputs)
        contestants.append(_contestant(name, module, inputs, time.perf_counter() - started))
    expected = results["default"] if isinstance(runtime, str) else runtime.expected
    checks = {name: compare(expected, got) for name, got in results.items()}
    if not any(np.isfinite(array.astype("float64")).any() for array in expected):
        notes.append("no output is a finite number for made-up inputs, so that their comparison proves little")
    if not isinstance(runtime, str):
        contestants.append(Contestant("onnxruntime", runtime.sample))
    timings = race(contestants, min(BUDGET_S, timeout_s / 4))
    if tuned.info.build == "default":
        notes.append("no task has a schedule: both builds are the untuned one")
        choice = "default"
    else:
        choice = published(timings, tuned_right=checks["tuned"].equal, notes=notes)
    check = checks[choice]
    return Evaluation(
        timings=tuple(timings), reference=reference, outputs_equal=check.equal, max_abs_error=check.max_abs_error,
        tolerance=check.tolerance, cores=cores, published=choice, notes=tuple(notes),
    )  # fmt: skip


def check(
    module: Module, model: Path, inputs: Mapping[str, Array], cores: tuple[int, ...], budget_s: float
) -> Evaluation:
    """Compare a module with its model in ONNX Runtime, and time both for `budget_s`.

    Raises RequestError for inputs that do not fit, and where ONNX Runtime cannot run the model.
    """
    started = time.perf_counter()
    outputs = module.run(inputs)
    once_s = time.perf_counter() - started
    runtime = _runtime(model, max(1, len(cores)), inputs)
    if isinstance(runtime, str):
        raise RequestError(
            f"{runtime}, so there is nothing to compare {module.info.name} with. Look for yourself: --output DIR"
        )
    found = compare(runtime.expected, outputs)
    ours = _contestant(module.info.build, module, inputs, once_s)
    timings = race([ours, Contestant("onnxruntime", runtime.sample)], budget_s)
    return Evaluation(
        timings=tuple(timings), reference=f"ONNX Runtime {runtime.version}", outputs_equal=found.equal,
        max_abs_error=found.max_abs_error, tolerance=found.tolerance, cores=cores, published=module.info.build,
    )  # fmt: skip


def _runtime(model: Path, threads: int, inputs: Mapping[str, Array]) -> Runtime | str:
    """The reference, or why there is none."""
    try:
        return Runtime(model, threads, inputs)
    except ImportError:
        return "ONNX Runtime is not installed"
    except Exception as error:  # it refuses models that TVM runs; that is no reason to fail
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        return f"ONNX Runtime cannot run the model: {said}"


def _contestant(name: str, module: Module, inputs: Mapping[str, Array], once_s: float) -> Contestant:
    tensors = module.bind(inputs)
    return Contestant(name, lambda number: module.sample(tensors, number), once_s=once_s)


def race(contestants: Sequence[Contestant], budget_s: float) -> list[Timing]:
    """Sample each in turn, round after round, so that whatever disturbs the machine disturbs all of them alike."""
    for one in contestants:
        if one.once_s < SLOW_S:
            one.once_s = min(one.sample(1), one.sample(1))
        one.number = max(1, int(SAMPLE_S / max(one.once_s, 1e-9)))
        one.samples_s = []
    share_s = budget_s / len(contestants)
    for done in range(ROUNDS_MAX):
        for one in contestants:
            if done < ROUNDS_MIN or (one.once_s < SLOW_S and one.spent_s < share_s):
                one.samples_s.append(one.sample(one.number))
    return [summarize(one.name, one.samples_s) for one in contestants]


def published(timings: Sequence[Timing], *, tuned_right: bool, notes: list[str]) -> str:
    """Which build is handed to the user; `notes` says why it is not the tuned one."""
    by_name = {timing.name: timing for timing in timings}
    default, tuned = by_name["default"], by_name["tuned"]
    if not tuned_right:
        notes.append("the tuned build computes something else than the reference; the untuned build is published")
        return "default"
    if tuned.median_s >= default.median_s:
        notes.append("tuning did not make the network faster; the untuned build is published. Try more --trials")
        return "default"
    if not clearly_faster(tuned, default):
        notes.append("the tuned build is faster, but the intervals of the two overlap")
    return "tuned"
