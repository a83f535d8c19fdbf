"""How fast the templates' best kernels are, by the speed of the same core's sgemm and by ONNX Runtime's operators.

``python benchmarks/yardstick.py [--trials 64] [--tuner random|greedy|xgb|ga] [--only NAME ...] [--core 1]``

For each layer, all on one pinned core with one thread: the best of so many configurations, measured again alone at the
end in turn with sgemm of a large square product (numpy) and with the same layer in ONNX Runtime; the fastest sample of
each counts, which other load disturbs least. All layers carry a bias and a ReLU, as in a network. One that keeps its
shape is timed in ONNX Runtime as a chain, so that its own changes of layout at the ends do not count. Prints a table to
stderr and a JSON object last.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")

import numpy as np  # noqa: E402  (reads the number of threads when it is imported)

sys.path[:0] = [str(Path(__file__).parents[1] / "plugins"), str(Path(__file__).parent)]

from yardstick_layers import LAYERS, Layer, kernel, onnxruntime  # noqa: E402

SGEMM_SIZE = 1536
FIRST_REPEAT, LAST_REPEAT = 2, 7
MIN_REPEAT_MS = 20.0
HOPELESS_RATIO = 3.0


@dataclass
class Result:
    """What was found for a layer."""

    name: str
    template: str
    configurations: int
    trials: int
    failed: int
    seconds: float
    best_us: float
    best: dict[str, Any]
    gflops: float
    of_sgemm: float
    bar: float
    onnxruntime_gflops: float
    of_onnxruntime: float
    curve: list[float]
    """Best GFLOP/s after each trial, as measured while searching."""


def main() -> int:
    """Measure what is asked for."""
    args = _arguments()
    os.sched_setaffinity(0, {args.core})
    target = _target()
    results = []
    for layer in LAYERS:
        if args.only and not any(part in layer.name for part in args.only):
            continue
        result = measure(layer, target, args)
        results.append(result)
        print(_row(result), file=sys.stderr, flush=True)
    print(json.dumps({"tuner": args.tuner, "seed": args.seed, "layers": [asdict(result) for result in results]}))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--tuner", default="greedy", help="random, greedy, or a tuner of the backend: xgb, ga, grid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="*", default=[], help="parts of layers' names")
    parser.add_argument("--plain", choices=("NCHW", "NHWC"), help="this layout instead of blocks and packed weights")
    parser.add_argument("--no-onnxruntime", action="store_true")
    return parser.parse_args()


def measure(layer: Layer, target: Any, args: argparse.Namespace) -> Result:
    """Search, then measure the best, sgemm and ONNX Runtime side by side."""
    from autosched_backend_autotvm import template_matching

    workload = kernel(layer, target, args.plain)
    found = template_matching.find(workload, target)
    if found.template is None:
        raise SystemExit(f"{layer.name}: {found.why_not}")
    bench = Bench(workload, target)
    space = found.template.space()
    search = _search(args.tuner, workload, target, found.template, layer, args.seed)
    started = time.perf_counter()
    tried: dict[bytes, float | None] = {}
    curve = []
    best_s = float("inf")
    while len(tried) < args.trials and (batch := search.select(min(8, args.trials - len(tried)))):
        measured = []
        for candidate in batch:
            latency_s = bench.latency(candidate, FIRST_REPEAT, best_s)
            tried[candidate] = latency_s
            best_s = min(best_s, latency_s or best_s)
            curve.append(layer.flops / best_s / 1e9)
            measured.append((candidate, [] if latency_s is None else [latency_s]))
        search.update(measured)
    spent_s = time.perf_counter() - started
    finalists = sorted((c for c, s in tried.items() if s is not None), key=lambda c: tried[c] or 0.0)[:3]
    return _verdict(layer, args, bench, finalists, Result(
        layer.name, found.template.name, space.size, len(tried), sum(s is None for s in tried.values()), spent_s,
        0.0, {}, 0.0, 0.0, layer.bar, 0.0, 0.0, curve,
    ))  # fmt: skip


def _verdict(layer: Layer, args: argparse.Namespace, bench: "Bench", finalists: list[bytes], result: Result) -> Result:
    """Measure the best, sgemm and ONNX Runtime in turn; the fastest sample of each counts."""
    theirs = None if args.no_onnxruntime else onnxruntime(layer)
    modules = [bench.build(candidate) for candidate in finalists]
    ours_s: list[list[float]] = [[] for _ in modules]
    sgemm, other_s = [], []
    for _ in range(LAST_REPEAT):
        sgemm.append(sgemm_gflops())
        for samples, module in zip(ours_s, modules, strict=True):
            samples.append(bench.time(module, 1)[0])
        if theirs is not None:
            other_s.append(theirs())
    fastest_s = [min(samples) for samples in ours_s]
    latency_s = min(fastest_s)
    remembered = json.loads(finalists[fastest_s.index(latency_s)])[2]
    result.best = remembered.get("config", remembered)
    result.best_us = latency_s * 1e6
    result.gflops = layer.flops / latency_s / 1e9
    result.of_sgemm = result.gflops / max(sgemm)
    if other_s:
        result.onnxruntime_gflops = layer.flops / min(other_s) / 1e9
        result.of_onnxruntime = result.gflops / result.onnxruntime_gflops
    return result


def _row(result: Result) -> str:
    verdict = "" if not result.bar else "  ok" if result.of_sgemm >= result.bar else "  BELOW"
    return (
        f"{result.name:<24} {result.gflops:7.1f} GFLOP/s  {result.of_sgemm:5.2f} of sgemm"
        f"{f' (bar {result.bar:.2f})' if result.bar else '':<11}{verdict:<7}"
        f"  {result.of_onnxruntime:5.2f} of onnxruntime ({result.onnxruntime_gflops:.0f})"
        f"  {result.trials} trials of {result.configurations}, {result.failed} failed, {result.seconds:.0f} s"
        f"  {result.best}"
    )


def _target() -> Any:
    import tvm
    from tvm.target.codegen import llvm_get_system_cpu

    return tvm.target.Target({"kind": "llvm", "mcpu": str(llvm_get_system_cpu()), "num-cores": 1})


# Searching ------------------------------------------------------------------------------------------------------------


class Greedy:
    """Half at random, then neighbours of the best: a search simple enough to judge a template by itself."""

    def __init__(self, workload: Any, template: Any, seed: int, share: float) -> None:
        self._workload, self._template, self._space = workload, template, template.space()
        self._random = random.Random(seed)
        self._share = share
        self._known: set[int] = set()
        self._scores: dict[int, float] = {}

    def select(self, count: int) -> list[bytes]:
        """Candidates."""
        chosen: list[bytes] = []
        for _ in range(2000):
            if len(chosen) == count:
                break
            index = self._propose()
            if index in self._known or self._space.admits(self._space.config(index)):
                continue
            self._known.add(index)
            chosen.append(self._encode(index))
        return chosen

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Remember the good ones."""
        for candidate, latency_s in measured:
            if latency_s and (index := self._space.find(json.loads(candidate)[2])) is not None:
                self._scores[index] = latency_s[0]

    def _propose(self) -> int:
        space, rng = self._space, self._random
        if len(self._scores) < 8 or rng.random() < self._share:
            return rng.randrange(space.size)
        digits = list(space.digits(rng.choice(sorted(self._scores, key=lambda i: self._scores[i])[:4])))
        for _ in range(rng.choice((1, 1, 2))):
            place = rng.randrange(len(digits))
            digits[place] = rng.randrange(space.radices[place])
        return int(space.index(digits))

    def _encode(self, index: int) -> bytes:
        from tvm import s_tir

        config = self._space.config(index)
        schedule = s_tir.Schedule(self._workload, debug_mask=0, enable_check=False)
        self._template.apply(schedule, config)
        trace = json.loads(json.dumps(schedule.trace.as_json(), default=lambda number: number.value))
        return json.dumps([*trace, config]).encode()


def _search(tuner: str, workload: Any, target: Any, template: Any, layer: Layer, seed: int) -> Any:
    if tuner in ("random", "greedy"):
        return Greedy(workload, template, seed, 1.0 if tuner == "random" else 0.4)
    from autosched.model import TaskInfo
    from autosched_backend_autotvm.options import read
    from autosched_backend_autotvm.search_method import AutoTvmMethod
    from autosched_tvm.tuning.search_method import SearchContext

    info = TaskInfo(task=1, name=layer.name, workload="0", weight=1, flops=layer.flops, shape=layer.name)
    site = SearchContext(info=info, workload=workload, target=target, seed=seed, threads=1)
    return AutoTvmMethod(read({"tuner": tuner})).search(site)


# Measuring ------------------------------------------------------------------------------------------------------------


class Bench:
    """A layer's buffers, and what its kernels must compute."""

    def __init__(self, workload: Any, target: Any) -> None:
        import tvm
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo

        self._tvm, self._workload, self._target = tvm, workload, target
        shapes = [tuple(int(d) for d in info.shape) for info in ArgInfo.from_entry_func(workload, remove_preproc=True)]
        generator = np.random.default_rng(0)
        self._buffers = [tvm.runtime.tensor(generator.uniform(0.1, 1, shape).astype("float32")) for shape in shapes]
        self._expected: Any = None

    def build(self, candidate: bytes) -> Any:
        """The compiled kernel."""
        from autosched_tvm.compile import lowering
        from autosched_tvm.compile.candidate_build import scheduled

        module = scheduled(self._workload, json.dumps(json.loads(candidate)[:2]).encode())
        return self._tvm.tirx.build(module, target=self._target, pipeline=lowering.install())

    def latency(self, candidate: bytes, repeat: int, best_s: float) -> float | None:
        """The best of a few samples, in seconds; None for a kernel that does not build or is wrong."""
        try:
            module = self.build(candidate)
        except Exception as error:  # whatever the compiler trips over is a failed trial
            print(f"  does not build: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
            return None
        self._check(module)
        first_s = self.time(module, 1, 0.0)[0]
        return first_s if first_s > HOPELESS_RATIO * best_s else min(self.time(module, repeat))

    def time(self, module: Any, repeat: int, min_repeat_ms: float = MIN_REPEAT_MS) -> list[float]:
        """Seconds of a call."""
        timer = module.time_evaluator(
            "main", self._tvm.cpu(), number=1, repeat=repeat, min_repeat_ms=int(min_repeat_ms)
        )
        return [float(s) for s in timer(*self._buffers).results]

    def _check(self, module: Any) -> None:
        """All candidates must agree with the first; the tests hold the templates against the untuned kernel."""
        module["main"](*self._buffers)
        found = self._buffers[-1].numpy()
        if self._expected is None:
            self._expected = found
        if not np.allclose(found, self._expected, rtol=1e-3, atol=1e-3):
            raise SystemExit("two schedules of one layer disagree")


def sgemm_gflops() -> float:
    """Of a large square product in numpy, the best of a few; by processor time, of which nobody else takes a share."""
    generator = np.random.default_rng(0)
    left, right = (generator.uniform(0.1, 1, (SGEMM_SIZE, SGEMM_SIZE)).astype("float32") for _ in range(2))
    best_s = float("inf")
    for _ in range(3):
        started = time.process_time()
        left @ right
        best_s = min(best_s, time.process_time() - started)
    return 2.0 * SGEMM_SIZE**3 / best_s / 1e9


if __name__ == "__main__":
    sys.exit(main())
