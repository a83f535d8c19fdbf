"""A text network for all lengths in one file, beside modules for one length each and ONNX Runtime. Prints JSON.

``python benchmarks/lengths.py [--most 512] [--trials N]``. What is compiled stays in the cache, so that a run goes on
where one stopped. The result is written to benchmarks/results/lengths.json.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from networks import networks
from raw_results import with_origin

import autosched_runtime
from autosched import user_folders
from compiled_networks import commands

RESULTS = Path(__file__).parent / "results" / "lengths.json"
CACHE = user_folders.cache() / "autosched" / "lengths"
NETWORK = "minilm-l3"
SHARES = (0.01, 0.03, 0.05, 0.08, 0.13, 0.21, 0.35, 0.55, 0.7, 0.88, 1.0)
"""Measured lengths as shares of the largest; none was chosen for the sizes that have networks."""
ROUNDS, IN_A_ROW_S = 15, 0.03
"""Number of turns, and seconds of each."""
WORDS = 30_000
"""Number of words that the network knows."""


def main() -> int:
    """Compiles what is missing, and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=512, help="the largest length")
    parser.add_argument("--trials", type=int, default=0, help="for the largest length, and for each single one")
    args = parser.parse_args()
    (network,) = networks(NETWORK)
    model = network.fetch()
    names = list(network.shapes)
    whole = tuned(model, names, f"1..{args.most}", args.trials)
    rows = []
    session = onnxruntime_session(model)
    flexible = autosched_runtime.load(whole)
    for length in sorted({max(1, round(share * args.most)) for share in SHARES}):
        alone = autosched_runtime.load(tuned(model, names, str(length), args.trials))
        made = np.random.default_rng(length)
        feed = {name: np.ones((1, length), "int64") for name in names}
        feed["input_ids"] = made.integers(1, WORDS, (1, length))
        found = in_turns({
            "range": partial(flexible.run, feed), "alone": partial(alone.run, feed),
            "onnxruntime": partial(session.run, None, feed),
        })  # fmt: skip
        right = all(
            np.allclose(one, other, rtol=1e-3, atol=1e-4)
            for one, other in zip(flexible.run(feed), session.run(None, feed), strict=True)
        )
        rows.append({"length": length, "seconds": found, "equal": right})
        print(rows[-1], file=sys.stderr, flush=True)
    told: dict[str, Any] = {
        "network": NETWORK, "most": args.most, "trials": args.trials,
        "networks": len(getattr(flexible, "networks", (flexible,))),
        "file_bytes": whole.stat().st_size,
        "alone_bytes": tuned(model, names, str(args.most), args.trials).stat().st_size,
        "over_alone": [row["seconds"]["range"] / row["seconds"]["alone"] for row in rows],
        "over_onnxruntime": [row["seconds"]["range"] / row["seconds"]["onnxruntime"] for row in rows],
        "rows": rows,
    }  # fmt: skip
    RESULTS.write_text(json.dumps(with_origin(told), indent=1) + "\n")
    print(json.dumps(told))
    return 0


def tuned(model: Path, names: list[str], lengths: str, trials: int) -> Path:
    """The file of a network for some lengths, "1..512", or one."""
    folder = CACHE / f"{model.stem}-{lengths}-{trials}"
    if not (found := list(folder.glob("*.asn"))):
        print(f"== {lengths}", file=sys.stderr, flush=True)
        shapes = [f"--shape={name}=1,{lengths}" for name in names]
        with commands() as run:
            run("tune", str(model), *shapes, "--trials", str(trials), "--output", str(folder))
            if not list(folder.glob("*.asn")):
                run("export", str(folder))
        found = list(folder.glob("*.asn"))
    return found[0]


def onnxruntime_session(model: Path) -> Any:
    """A session of ONNX Runtime that takes all lengths."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def in_turns(contestants: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each contestant's calls, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            call()
            began, count = time.perf_counter(), 0
            while time.perf_counter() - began < IN_A_ROW_S:
                call()
                count += 1
            times[name].append((time.perf_counter() - began) / count)
    return {name: statistics.median(found) for name, found in times.items()}


if __name__ == "__main__":
    sys.exit(main())
