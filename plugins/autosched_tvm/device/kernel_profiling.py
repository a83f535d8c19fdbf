"""Measures one candidate on the cores of the device. Runs in a worker."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched_tvm.compile.candidate_build import load_task
from autosched_tvm.device.place import HERE, Place, place_of
from autosched_tvm.rounding import LEVELS, rounding_share, terms_of
from autosched_tvm.tvm_types import IRModule
from autosched_tvm.worker_messages import Elsewhere, MeasurementPlan, Remote

HOPELESS_RATIO = 5.0
"""Ratio of a run's time to the best known latency above which a candidate gets no further samples. The first run has
cold caches and counts only if it is long; the second run counts always."""
SLOW_RATIO = 1.3
"""The same for a whole sample. Noise of a sample is a few percent, so that such a candidate is none of the best."""
NUMBER_MAX = 100_000
COLD_WEIGHTS, COLD_RESULTS = 1 << 20, 2 << 20
"""Minimum bytes of a kernel's weights (its inputs but the first), and of its results. A larger kernel is called with
cold caches: in a network, all other kernels use the caches between two of its calls, so that the fastest candidate with
warm caches may not be the fastest there."""
RELATIVE_TOLERANCE = 1e-4
"""Maximum error as a share of the largest result. One product of a sum of 4608 is about 4e-3; rounding is 1e-6."""
HALF_TOLERANCE = 2e-2
"""The same for float16: the third digit of its sums depends on their order."""

BENCHES_MAX = 2
"""Maximum benches of a process: their buffers are as large as the tasks' inputs."""
LARGE = 1e4
"""Largest result of random inputs of both signs. Above it, or if a result is no number, the kernel divides or takes
roots, and runs on positive inputs."""


class WrongResult(Exception):
    """The kernel's result differs from the workload's."""


def arguments(task: str) -> list[tuple[tuple[int, ...], str]]:
    """Shape and type of each buffer of a task's kernel, outputs last."""
    infos = ArgInfo.from_entry_func(load_task(task), remove_preproc=True)
    return [(tuple(int(d) for d in info.shape), str(info.dtype)) for info in infos]


class Bench:
    """One task's buffers, and the expected results of its kernel."""

    def __init__(self, task: str, reference: str, place: Place) -> None:
        self.place = place
        judge: Place = HERE if place.on_gpu else place  # the reference has code for a CPU
        right, wanted = judge.load(reference)["main"], arguments(task)
        for fill in (_signed, _positive):
            generator = np.random.default_rng(0)
            self.inputs = [fill(generator, shape, dtype) for shape, dtype in wanted]
            self.buffers = [judge.tensor(array) for array in self.inputs]
            right(*self.buffers)
            after = [buffer.numpy() for buffer in self.buffers]
            if _is_tame(after[-1]):
                break
        if place.on_gpu:
            self.buffers = [place.tensor(array) for array in self.inputs]
        weights = sum(array.nbytes for array in self.inputs[1:-1])
        self.cold = weights >= COLD_WEIGHTS or self.inputs[-1].nbytes >= COLD_RESULTS
        changed = {i for i, array in enumerate(after) if not np.array_equal(array, self.inputs[i], equal_nan=True)}
        self.outputs = sorted(changed | {len(after) - 1})  # the last buffer may by chance have kept its content
        self.expected = {i: after[i] for i in self.outputs}
        self.terms = terms_of(self.inputs, self.expected.values())
        self.poison = {i: place.tensor(_poison(after[i])) for i in self.outputs}

    def clear(self) -> None:
        """Clear earlier results, so that a kernel cannot pass with another's."""
        for i, poison in self.poison.items():
            poison.copyto(self.buffers[i])

    def sample(self, module: Any, number: int) -> float:
        """Mean latency of a number of calls, in seconds."""
        plan: dict[str, Any] = {"number": number}
        if self.cold:
            plan = {"number": 1, "repeat": number, "f_preproc": self.place.flush}
        results = module.time_evaluator("main", self.place.device, **plan)(*self.buffers).results
        return max(float(sum(results)) / len(results), 1e-12)

    def check(self) -> None:
        """Raise WrongResult unless the outputs equal the reference's."""
        for i, expected in self.expected.items():
            got = self.buffers[i].numpy()
            if expected.dtype.name in LEVELS:
                wrong, bound = float(np.max(np.abs(got.astype("int16") - expected), initial=0)), 1.0
            elif expected.dtype.kind in "biu":
                wrong, bound = float(np.any(got != expected)), 0.0
            else:
                scale = float(np.nanmax(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
                relative = HALF_TOLERANCE if expected.dtype == np.float16 else RELATIVE_TOLERANCE
                bound = max(relative, rounding_share(expected.dtype.name, self.terms)) * scale + 1e-7
                difference = np.abs(got.astype("float64") - expected.astype("float64"))
                same = (got == expected) | (np.isnan(got) & np.isnan(expected))
                wrong = float(np.max(np.where(same, 0.0, difference), initial=0.0))
            if not wrong <= bound:
                raise WrongResult(f"output {i} differs from the reference kernel's by {wrong:.3g}, allowed {bound:.3g}")


_benches: dict[tuple[str, str, Place], Bench] = {}
"""Benches of the last tasks."""


def bench(task: str, reference: str, place: Place) -> Bench:
    """A task's bench; the last two are kept while their session lasts."""
    for key in [key for key in _benches if key[2] is not place]:
        del _benches[key]
    if (known := _benches.pop((task, reference, place), None)) is None:
        known = Bench(task, reference, place)
    _benches[task, reference, place] = known
    while len(_benches) > BENCHES_MAX:
        del _benches[next(iter(_benches))]
    return known


def ready(task: str, reference: str, remote: Elsewhere | None = None) -> None:
    """Create the task's bench, separately because the reference may be slow and candidates have a short deadline."""
    with place_of(remote) as place:
        bench(task, reference, place)


def profile(
    task: str, reference: str, artifact: str, plan: MeasurementPlan, remote: Elsewhere | None = None
) -> tuple[float, ...]:
    """Latencies of one call, in seconds. Raises WrongResult, and DeviceLost on a board."""
    with place_of(remote) as place:
        own = bench(task, reference, place)
        module = place.load(artifact)
        first_s = _checked(module, own)
        # on a board, the time contains a message in each direction
        if not isinstance(remote, Remote) and _hopeless(first_s, plan):
            return (first_s,)
        second_s = own.sample(module, 1)
        if plan.best_s is not None and second_s > HOPELESS_RATIO * plan.best_s:
            return (second_s,)
        number = _number(second_s, plan)
        samples: list[float] = []
        while len(samples) < plan.repeat and not (samples and _slow(samples[-1], plan)):
            samples.append(own.sample(module, number))
        return tuple(samples)


def compare(
    task: str, reference: str, artifacts: Sequence[str], plan: MeasurementPlan, remote: Elsewhere | None = None
) -> list[tuple[float, ...] | str]:
    """Latencies of each candidate, measured in turns; the error of one with a wrong result.

    A very slow one, such as most untuned kernels, runs once. Raises DeviceLost, on a board.
    """
    with place_of(remote) as place:
        own = bench(task, reference, place)
        found: list[list[float] | str] = []
        turns = []
        for artifact in artifacts:
            module = place.load(artifact)
            try:
                first_s = _checked(module, own)
            except WrongResult as error:
                found.append(str(error))
                continue
            found.append(samples := [])
            if not isinstance(remote, Remote) and _hopeless(first_s, plan):
                samples.append(first_s)
                continue
            second_s = own.sample(module, 1)
            if _hopeless(second_s, plan):
                samples.append(second_s)
            else:
                turns.append((samples, module, _number(second_s, plan)))
        for _ in range(plan.repeat):
            for samples, module, number in turns:
                samples.append(own.sample(module, number))
        return [one if isinstance(one, str) else tuple(one) for one in found]


def _checked(module: IRModule, own: Bench) -> float:
    """Seconds of the first call, by the clock of this machine. Raises WrongResult."""
    function = module["main"]
    own.clear()
    started = time.perf_counter()
    function(*own.buffers)
    own.place.sync()
    first_s = time.perf_counter() - started
    own.check()
    return first_s


def _hopeless(first_s: float, plan: MeasurementPlan) -> bool:
    return plan.best_s is not None and first_s > max(HOPELESS_RATIO * plan.best_s, plan.min_repeat_s)


def _slow(sample_s: float, plan: MeasurementPlan) -> bool:
    return plan.best_s is not None and sample_s > SLOW_RATIO * plan.best_s


def _number(once_s: float, plan: MeasurementPlan) -> int:
    """Number of calls that make a sample long enough."""
    return min(NUMBER_MAX, max(1, math.ceil(plan.min_repeat_s / max(once_s, 1e-9))))


def _signed(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Numbers of both signs, so that no error hides in a large sum."""
    if np.dtype(dtype).kind != "f":
        return _integers(generator, shape, dtype)
    return generator.standard_normal(shape).astype(dtype)


def _positive(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Numbers for divisions and roots."""
    if np.dtype(dtype).kind != "f":
        return _integers(generator, shape, dtype)
    return generator.uniform(0.1, 1.0, shape).astype(dtype)


def _integers(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Any numbers of 8 bits; zeros of other types, which may be indices."""
    if dtype not in LEVELS:
        return np.zeros(shape, dtype)
    bounds = np.iinfo(dtype)
    return generator.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)


def _is_tame(array: np.ndarray[Any, Any]) -> bool:
    if array.dtype.kind != "f":
        return True
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.abs(array.astype("float64")) <= LARGE))


def _poison(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    fill = np.nan if array.dtype.kind == "f" else ~np.zeros((), array.dtype) if array.dtype.kind in "biu" else 0
    return np.full_like(array, fill)
