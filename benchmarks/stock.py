"""Stock TVM on one network: `tune_tasks` with its own builder, runner and cost model, on the tasks of autosched.

Run by against_stock.py as a process of its own: ``python benchmarks/stock.py MODEL.onnx --trials N --output DIR``.
Leaves DIR/stock.so and DIR/stock.json (a module for `autosched evaluate`) and prints one JSON object: wall seconds of
the tuning, where they went by stage, and trials by outcome.
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from autosched_backend_ansor.options import Options
from autosched_tvm.compile import intrinsics, model_sources, network_compiler, onnx_import, targets, task_extraction

DEFAULTS = Options()
SEARCH = {
    name: getattr(DEFAULTS, name)
    for name in ("population_size", "init_min_unmeasured", "genetic_num_iters", "eps_greedy")
}
"""Search settings equal to the backend's defaults."""


def main() -> None:
    """Tunes, compiles, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--helped-builder", action="store_true", help="spare it the import that takes most of its time")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    shapes = {name: tuple(map(int, dims.split(","))) for name, dims in (text.split("=") for text in args.shape)}
    target_text = targets.resolve("auto", 1)
    target = tvm.target.Target(json.loads(target_text))
    prepared = onnx_import.prepare(args.model, shapes)
    module = onnx_import.fused(onnx_import.cleaned(prepared.model), target)
    extracted, workloads = task_extraction.extract([module], target)
    database, told = tune(args, target, extracted, workloads)
    who = network_compiler.SideName(args.model.stem, "stock")
    network_compiler.write_build(
        args.output / "stock", module, model_sources.OnnxSource(prepared.model), target_text, who, database=database
    )
    print(json.dumps(told))


def tune(args: argparse.Namespace, target: Any, extracted: Any, workloads: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Tunes with TVM's defaults except the search settings, the trials and the batch."""
    quiet = logging.getLogger("stock")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    contexts = [
        ms.TuneContext(
            mod=workload,
            target=target,
            space_generator="post-order-apply",
            search_strategy=ms.SearchStrategy.create("evolutionary", **SEARCH),
            task_name=info.name,
            rand_state=args.seed * 1000 + info.task,
            num_threads=args.cores,
            logger=quiet,
        ).clone()
        for info, workload in zip(extracted.tasks, workloads, strict=True)
    ]
    database = ms.database.MemoryDatabase()
    counts = Counter()
    started = time.monotonic()
    with ms.Profiler() as profiler:
        ms.tune_tasks(
            tasks=contexts,
            task_weights=[float(info.weight) for info in extracted.tasks],
            work_dir=str(args.output),
            max_trials_global=args.trials,
            num_trials_per_iter=args.batch,
            builder=builder(args),
            database=database,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel(), counts],
        )
        wall_s = time.monotonic() - started
    stages_s = {str(name): float(seconds) for name, seconds in profiler.get().items() if name != "Total"}
    return database, {
        "wall_s": wall_s,
        "stages_s": stages_s,
        "tasks": len(contexts),
        "trials": counts.trials,
        "failed": counts.failed,
    }


def builder(args: argparse.Namespace) -> Any:
    """Returns stock's own builder, or the same without the slow import of its workers, which changes only the time."""
    if not args.helped_builder:
        return "local"
    return ms.builder.LocalBuilder(max_workers=args.cores, initializer=intrinsics.install)


@tvm.ir.utils.derived_object
class Counter(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Counts trials and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.trials = 0
        self.failed = 0

    def apply(self, task_scheduler: Any, task_id: int, candidates: Any, builds: Any, results: Any) -> None:
        """Called after each round."""
        self.trials += len(candidates)
        self.failed += sum(result is None or result.error_msg is not None for result in results)


if __name__ == "__main__":
    main()
