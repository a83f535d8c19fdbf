"""What a second core is worth: ``python benchmarks/two_cores.py MODULE.so=MODEL.onnx [...]``.

Each module, as `autosched tune --cores 2` leaves it, runs on one and on two cores, and so does ONNX Runtime with the
fastest form of the model. All four take turns in one race, each in a process of its own, the others frozen: whatever
disturbs the machine disturbs all alike. `ONE.so+TWO.so=MODEL.onnx` races a module that was tuned for one core on one
core, and another one on two.

`--kernels N` adds the N kernels of each module that lose most: their times on one and on two cores, in a network.
Prints everything as JSON.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from autosched.backend import Lease
from autosched.config import usable_cores
from autosched.process.forked_workers import Workers, prepare
from autosched_tvm import worker_messages
from autosched_tvm.compile.side_file import side_of
from autosched_tvm.evaluation import model_forms
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, race
from autosched_tvm.generated_inputs import random_inputs

RACE_S = 12.0
"""Seconds in which all four are timed."""
TIMEOUT_S = 300.0
"""Seconds for loading and timing all engines of one network."""
WORKER_CALLS_MAX = 1_000
ROUNDS = 25
"""Runs of a network in which its kernels are timed one by one."""
KERNELS = f"{Path(__file__).stem}:kernel_times"


def main() -> int:
    """Measure what was named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="[ONE.so+]TWO.so=MODEL.onnx")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="also the N kernels that lose most")
    parser.add_argument("--seconds", type=float, default=RACE_S, help="seconds for each race")
    args = parser.parse_args()
    cores = tuple(usable_cores()[-2:])
    if len(cores) < 2:
        parser.error("this process may use one core only")
    prepare(worker_messages.PRELOAD)
    rows = []
    for pair in args.pairs:
        modules, _, model = pair.partition("=")
        one, _, two = modules.rpartition("+")
        with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
            workers = Workers(Path(folder) / "logs", recycle_after=WORKER_CALLS_MAX)
            row = _race(Path(one or two), Path(two), Path(model), cores, args.seconds, workers, Path(folder))
            if args.kernels:
                row["kernels_us"] = _kernels(Path(two), cores, args.kernels, workers)
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
    print(json.dumps({"networks": rows, "mean": _means(rows)}, indent=1))
    return 0


def _race(
    one: Path, two: Path, model: Path, cores: tuple[int, ...], seconds: float, workers: Workers, folder: Path
) -> dict[str, Any]:
    """Medians in seconds by engine and number of cores, and what they say."""
    side = side_of(two)
    inputs = random_inputs(side.inputs)
    written = model_forms.write(
        str(model), {name: array.shape for name, array in inputs.items()}, str(folder / "forms")
    )
    racers, chosen = [], {}
    one_core, two_cores = (Lease("evaluate", (), own, TIMEOUT_S) for own in (cores[:1], cores))
    with EngineBenchmark(workers, one_core) as alone, EngineBenchmark(workers, two_cores) as both:
        for contest, module in ((alone, one), (both, two)):
            count = len(contest.cores)
            ours, _ = contest.module(f"autosched {count}", module)
            ours.bind(inputs)
            rival = contest.rival(written, inputs)
            if isinstance(rival, str):
                raise SystemExit(rival)
            rival.contestant.name = f"onnxruntime {count}"
            chosen[count] = rival.form
            racers += [ours, rival.contestant]
        found = {timing.name: timing for timing in race(racers, seconds).timings}
    median_s = {name: timing.median_s for name, timing in found.items()}
    return {
        "name": side.name,
        "tuned_for": [side_of(one).cores, side.cores],
        "median_s": median_s,
        "interval_s": {name: [timing.low_s, timing.high_s] for name, timing in found.items()},
        "form": chosen,
        "gain": median_s["autosched 1"] / median_s["autosched 2"],
        "gain_onnxruntime": median_s["onnxruntime 1"] / median_s["onnxruntime 2"],
        "against_onnxruntime": [median_s[f"autosched {n}"] / median_s[f"onnxruntime {n}"] for n in (1, 2)],
    }


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Geometric means over the networks."""

    def mean(values: list[float]) -> float:
        return math.exp(sum(map(math.log, values)) / len(values))

    return {
        "gain": mean([row["gain"] for row in rows]),
        "gain_onnxruntime": mean([row["gain_onnxruntime"] for row in rows]),
        "against_onnxruntime_one": mean([row["against_onnxruntime"][0] for row in rows]),
        "against_onnxruntime_two": mean([row["against_onnxruntime"][1] for row in rows]),
    }


def _kernels(module: Path, cores: tuple[int, ...], most: int, workers: Workers) -> list[dict[str, Any]]:
    """The kernels on which two cores take longer than half of one core's time, by what they lose."""
    one, two = (
        dict(workers.once(Lease("evaluate", (), own, TIMEOUT_S), KERNELS, str(module), timeout_s=TIMEOUT_S))
        for own in (cores[:1], cores)
    )  # fmt: skip
    lost = {name: two[name] - one[name] / 2 for name in two if name in one}
    return [
        {"kernel": name, "one": one[name], "two": two[name], "gain": one[name] / max(two[name], 1e-3)}
        for name in sorted(lost, key=lambda name: -lost[name])[:most]
    ]


def kernel_times(module: str) -> dict[str, float]:
    """Lower quartile of what each kernel of a network takes in one inference, in microseconds. Runs in a worker."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(module), tvm.cpu())
    inputs = [tvm.runtime.tensor(array) for array in random_inputs(side_of(Path(module)).inputs).values()]
    samples: dict[str, list[float]] = {}
    started, spent = 0.0, dict[str, float]()

    def watch(_function: Any, name: str, before: bool, _result: Any, *_arguments: Any) -> None:
        nonlocal started
        if before:
            started = time.perf_counter()
        else:
            spent[name] = spent.get(name, 0.0) + (time.perf_counter() - started) * 1e6

    machine.set_instrument(watch)
    for _ in range(ROUNDS):
        spent.clear()
        machine["main"](*inputs)
        for name, taken in spent.items():
            samples.setdefault(str(name), []).append(taken)
    return {name: quantiles(taken, n=4)[0] for name, taken in samples.items() if not name.startswith("vm.")}


if __name__ == "__main__":
    sys.exit(main())
