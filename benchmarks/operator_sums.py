"""How much of each network's latency the times of its operators explain.

``python benchmarks/operator_sums.py MODULE... [--core 1] [--seconds 4]`` prints a line for each compiled network, and
a JSON object: the whole, the sum of the operators, sum / whole, and the shares by where the schedules come from.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path, nargs="+")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    print(json.dumps([summed(path, args.seconds) for path in args.module]))


def summed(path: Path, seconds: float) -> dict[str, Any]:
    """The figures of one network."""
    from autosched_tvm.device.loaded_module import LoadedModule
    from autosched_tvm.device.operator_profiling import measured
    from autosched_tvm.generated_inputs import random_inputs

    module = LoadedModule(path)
    times = measured(module, module.bind(random_inputs(module.info.inputs)), seconds)
    shares: defaultdict[str, float] = defaultdict(float)
    for row in times.rows:
        shares[row.schedule] += row.time_s / times.whole_s
    told = ", ".join(f"{name} {share:.1%}" for name, share in sorted(shares.items(), key=lambda item: -item[1]))
    ratio = times.sum_s / times.whole_s
    line = f"{path.stem:<28} {1e3 * times.whole_s:8.2f} ms  sum / whole {ratio:.3f}  {told}"
    print(line, file=sys.stderr, flush=True)
    return {
        "network": path.stem, "whole_ms": 1e3 * times.whole_s, "sum_ms": 1e3 * times.sum_s, "ratio": ratio,
        "shares": shares,
    }  # fmt: skip


if __name__ == "__main__":
    main()
