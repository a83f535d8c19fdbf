"""Checks a network where it runs: whether it gives what it was verified with, and is as fast as its file promises."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autosched_runtime import disturbances, thread_pool
from autosched_runtime.cpu_model import cpu_model
from autosched_runtime.errors import FileMissing, NetworkError
from autosched_runtime.inputs import Array
from autosched_runtime.network import Network
from autosched_runtime.network_of_shapes import networks_of
from autosched_runtime.samples import Sample

SLOWER = 1.15
"""Ratio to what was promised, above which a network is slower than promised."""
SAMPLE_S = 0.02
"""Least duration of one measurement: several inferences of a fast network."""
ROUNDS_MIN = 3
NO_REASON = "no reason is known: it is the same CPU, and neither load nor heat nor a quota was seen"
FINE, DIFFERS, SLOW, UNUSABLE = 0, 1, 3, 4
"""Exit codes. UNUSABLE: there is no network, or this machine cannot run it."""


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    network: str
    inputs: str
    """Its inputs, in words."""
    cpu: str
    threads: int
    samples: int
    """Number of samples whose outputs were compared."""
    differences: tuple[str, ...]
    """Outputs that differ, in words."""
    latency_s: float | None
    """Median latency of an inference; None if it was not measured."""
    promised_s: float | None
    """The promised latency; None if there is no promise."""
    promised_ratio: float | None
    """The promised latency over that of the rival."""
    rival: str
    """The engine that would run the model otherwise."""
    rival_s: float | None
    """Latency of the rival, measured here."""
    reasons: tuple[str, ...]
    """Reasons why it may be slower than promised."""

    @property
    def ratio(self) -> float | None:
        """Latency over that of the rival here; None if one was not measured."""
        return None if self.latency_s is None or self.rival_s is None else self.latency_s / self.rival_s

    @property
    def slower(self) -> float | None:
        """How much slower it is than promised: by the ratio to its rival, if that was measured here, and else by its
        latency. None if nothing was promised, or measured."""
        if self.ratio is not None and self.promised_ratio is not None:
            return self.ratio / self.promised_ratio
        return None if self.latency_s is None or self.promised_s is None else self.latency_s / self.promised_s

    @property
    def code(self) -> int:
        """The exit code."""
        if self.differences:
            return DIFFERS
        return SLOW if self.slower is not None and self.slower > SLOWER else FINE

    def lines(self) -> Iterator[str]:
        """The result in words."""
        yield f"{self.network} on {self.cpu}, {_count(self.threads, 'thread')}: {self.inputs}"
        if self.differences:
            yield f"outputs   DIFFER from those that were verified: {'; '.join(self.differences)}"
        elif self.samples:
            yield f"outputs   as verified ({_count(self.samples, 'sample')})"
        else:
            yield "outputs   not checked: the network has no samples"
        if self.latency_s is None:
            return
        yield f"latency   {_seconds(self.latency_s)}: {self._judged()}"
        if self.rival_s is not None:
            yield f"          {self.rival} takes {_seconds(self.rival_s)} here: {self.ratio:.2f} of its time"
        if self.code == SLOW:
            yield f"because   {'; '.join(self.reasons) or NO_REASON}"

    def _judged(self) -> str:
        if self.slower is None or self.promised_s is None:
            return "nothing was promised"
        promised = _seconds(self.promised_s)
        if self.promised_ratio is not None:
            promised = f"{self.promised_ratio:.2f} of {self.rival}'s time, {promised}"
        if self.slower > SLOWER:
            return f"{self.slower:.2f} times what was promised ({promised})"
        return f"{'faster than' if self.slower < 1 / SLOWER else 'as'} promised ({promised})"

    def json(self) -> dict[str, Any]:
        """The result for programs."""
        return {**asdict(self), "ratio": self.ratio, "slower": self.slower, "code": self.code}


def check(path: Path, *, seconds: float = 2.0, threads: int | None = None, model: Path | None = None) -> list[Checked]:
    """Run the samples of a file's network, and measure it. Of several networks, for several shapes, each that has
    samples.

    `seconds`: of a measurement; 0: none. `threads`: None: as many as it was tuned for. `model`: the file that it was
    compiled from, which ONNX Runtime then runs in turns with it. Raises NetworkError.
    """
    networks = [(network, network.samples()) for network in networks_of(path, threads)]
    chosen = [(network, samples) for network, samples in networks if samples] or networks
    return [_checked(network, samples, seconds, model) for network, samples in chosen]


def worst(found: Sequence[Checked]) -> int:
    """The exit code of several checks: outputs that differ weigh most."""
    codes = {one.code for one in found}
    return next((code for code in (DIFFERS, SLOW) if code in codes), FINE)


def _checked(network: Network, samples: Sequence[Sample], seconds: float, model: Path | None) -> Checked:
    names = [tensor.name for tensor in network.description.outputs]
    differences = tuple(
        f"output {names[output]!r} of sample {number} by {apart:.3g}, allowed {allowed:.3g}"
        for number, sample in enumerate(samples)
        for output, apart, allowed in sample.differing(network.run(sample.inputs))
    )
    inputs = samples[0].inputs if samples else _made_up(network)
    promise = network.description.promise
    rival = None if model is None else _rival(model, network, inputs)
    before = disturbances.counters()
    found = _measured(network, inputs, rival, seconds) if seconds > 0 else (None, None)
    reasons = [*_elsewhere(network), *disturbances.between(before, disturbances.counters())]
    latency_s, rival_s = found
    return Checked(
        network=network.path.name, inputs=network.description.told_inputs, cpu=cpu_model(),
        threads=network.threads, samples=len(samples), differences=differences,
        latency_s=latency_s, promised_s=promise.get("median_s"), promised_ratio=promise.get("ratio"),
        rival=str(promise.get("rival", "ONNX Runtime")), rival_s=rival_s,
        reasons=tuple(reasons) if latency_s is not None else (),
    )  # fmt: skip


def _elsewhere(network: Network) -> Iterator[str]:
    """How this machine differs from that of the promise."""
    promise = network.description.promise
    if promise and promise["cpu"] != cpu_model():
        yield f"the promise is of another CPU: {promise['cpu']}"
    if promise and network.threads < promise["cores"]:
        why = f", and this process may use {thread_pool.usable()}" if thread_pool.usable() < promise["cores"] else ""
        yield f"it was measured with {_count(promise['cores'], 'thread')}, not {network.threads}{why}"


def _measured(
    network: Network, inputs: list[Array], rival: Callable[[], object] | None, seconds: float
) -> tuple[float, float | None]:
    """Median latencies of the network and of its rival, in turns."""
    bound = network.bind(inputs)
    contestants: list[Callable[[int], float]] = [partial(network.timed, bound)]
    if rival is not None:
        contestants.append(partial(_timed, rival))
    numbers, taken = [], [list[float]() for _ in contestants]
    for timed in contestants:
        timed(1)
        numbers.append(max(1, int(SAMPLE_S / max(timed(1), 1e-9))))
    until = time.perf_counter() + seconds
    while len(taken[0]) < ROUNDS_MIN or time.perf_counter() < until:
        for timed, number, times in zip(contestants, numbers, taken, strict=True):
            times.append(timed(number))
    medians = [statistics.median(times) for times in taken]
    return medians[0], medians[1] if rival is not None else None


def _timed(run: Callable[[], object], number: int) -> float:
    """Mean time of a number of inferences, in seconds."""
    started = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - started) / number


def _rival(model: Path, network: Network, inputs: list[Array]) -> Callable[[], object]:
    """An inference of the model in ONNX Runtime, with as many threads. Raises NetworkError."""
    try:
        import onnxruntime
    except ImportError:
        raise NetworkError(
            "onnxruntime is not installed, which runs the model: leave --model out, or install it"
        ) from None
    if not model.is_file():
        raise FileMissing(f"there is no model {model}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = network.threads
    feed = {tensor.name: array for tensor, array in zip(network.description.inputs, inputs, strict=True)}
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        session.run(None, feed)
    except Exception as error:  # it raises errors of its own
        raise NetworkError(f"ONNX Runtime cannot run {model}: {str(error).splitlines()[0]}") from error
    return lambda: session.run(None, feed)


def _made_up(network: Network) -> list[Array]:
    """Inputs of a network without samples: numbers from 0 to 1, or zeros."""
    made = np.random.default_rng(0)
    forms = [(tensor.shape, tensor.dtype) for tensor in network.description.inputs]
    return [
        made.random(shape).astype(dtype) if dtype.startswith("float") else np.zeros(shape, dtype)
        for shape, dtype in forms
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size or unit == "us":
            return f"{value / size:.3g} {unit}"
    return f"{value} s"
