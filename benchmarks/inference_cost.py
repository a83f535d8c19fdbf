"""Time of an inference of one thread with the code of two checkouts, in turns. Prints JSON.

``python benchmarks/inference_cost.py OLD`` compares this checkout with another one (git worktree add OLD COMMIT): the
ratios, new over old, of the network's function alone (latency) and of `run` with NumPy arrays (throughput). A process
that starts anew has its data elsewhere in the caches, which alone changes a ratio by some percent: so each network is
measured in several pairs of processes, and the standard error of the mean is given beside it.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean, median, stdev
from typing import IO, NamedTuple

from raw_results import PROJECT

from compiled_networks import compiled

NETWORKS = ("mtcnn-onet", "magika", "chars2vec", "orientation", "caustic-nmr", "attacut", "wakeword-jarvis", "seizure")
SAMPLE_S = 0.05
"""Time in seconds of one measurement, in which the network runs as often as it can."""
MEASURED = f"""
import sys, time
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1] + "/plugins"]
from pathlib import Path
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.generated_inputs import random_inputs
module = LoadedModule(Path(sys.argv[2]))
inputs = random_inputs(module.info.inputs)
bound = module.bind(inputs)
count = max(1, int({SAMPLE_S} / max(module.sample(bound, 3), 1e-6)))
for line in sys.stdin:
    alone_s = module.sample(bound, count)
    began_at = time.perf_counter()
    for _ in range(count):
        module.run(inputs)
    print(alone_s, (time.perf_counter() - began_at) / count, flush=True)
"""


class Times(NamedTuple):
    """Times of one call, in seconds or as ratios: of the function alone, and with NumPy arrays."""

    alone: float
    run: float


def main() -> None:
    """Compares all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="another checkout of this project")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of processes (default: %(default)s, at least 2)")
    parser.add_argument("--turns", type=int, default=12, help="measurements of each process (default: %(default)s)")
    args = parser.parse_args()
    found, everything, old = {}, [], args.old.resolve()
    with compiled(args.networks) as modules:
        for name, path in modules.items():
            # The process that starts first is up to 2 % faster, whatever its code: each checkout does so in turn.
            ratios = [compared((old, PROJECT), path, args.turns) for _ in range(0, args.pairs, 2)]
            ratios += [inverted(compared((PROJECT, old), path, args.turns)) for _ in range(1, args.pairs, 2)]
            everything += ratios
            found[name] = summary(ratios)
            print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps({"networks": found, "mean": summary(everything)}, indent=1))


def summary(ratios: list[Times]) -> dict[str, float]:
    """Returns the geometric means of ratios and their standard errors."""
    found = {}
    for key, values in zip(("latency", "throughput"), zip(*ratios, strict=True), strict=True):
        found[key] = round(geometric_mean(values), 4)
        found[f"{key}_error"] = round(stdev(values) / math.sqrt(len(values)), 4)
    return found


def compared(checkouts: tuple[Path, Path], module: Path, turns: int) -> Times:
    """Returns the medians of the ratios, second over first, of `turns` pairs of measurements in new processes."""
    pairs = []
    with started(checkouts[0], module) as first, started(checkouts[1], module) as second:
        for turn in range(turns):
            one, other = (first, second) if turn % 2 else (second, first)
            times = {id(process): measured(process) for process in (one, other)}
            pairs.append((times[id(first)], times[id(second)]))
    return Times(median(new.alone / was.alone for was, new in pairs), median(new.run / was.run for was, new in pairs))


def inverted(ratios: Times) -> Times:
    """Returns the ratios of first over second."""
    return Times(1 / ratios.alone, 1 / ratios.run)


@contextmanager
def started(checkout: Path, module: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs a process with the code of a checkout, on the last usable core, which measures once per line."""
    core = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-P", "-c", MEASURED, str(checkout), str(module)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def measured(process: subprocess.Popen[str]) -> Times:
    """Returns one measurement of a process."""
    write, read = _pipe(process.stdin), _pipe(process.stdout)
    write.write("\n")
    write.flush()
    return Times(*map(float, read.readline().split()))


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


if __name__ == "__main__":
    main()
