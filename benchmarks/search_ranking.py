"""How well the cost model of `autotvm` puts configurations in order that it has not seen.

`python benchmarks/search_ranking.py --keep FOLDER`, the folder of tables that search_quality.py filled: nothing is
measured. On each task the tuner `random` is followed through the table; what one of its seeds measured is learned
from, and what the others measured has to be put in order.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import search_page
import search_quality
from numpy.typing import NDArray
from run import machine
from search_table import Table
from search_tasks import Layer

from autosched_backend_autotvm import template_matching
from autosched_backend_autotvm.config_space import ConfigSpace
from autosched_backend_autotvm.cost_model import CostModel
from autosched_backend_autotvm.knob_features import KnobFeatures
from autosched_backend_autotvm.options import Options
from autosched_backend_autotvm.search import AutoTvmSearch, throughput
from autosched_backend_autotvm.store_features import StoreFeatures
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.model_based import ModelBasedTuner
from autosched_backend_autotvm.tuners.tuner_factory import learning, tuner_of
from autosched_tvm.compile import candidate_build, intrinsics, targets
from autosched_tvm.tuning.search_method import SearchContext

RESULTS = Path(__file__).parent / "results" / "search_ranking.json"
SIZES = (16, 32, 48)
BATCH = 8
TOP = 0.1
"""Share of the held-out configurations that counts as the best."""


def main() -> None:
    """Look, tell, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    intrinsics.install()
    told: dict[str, Any] = {"machine": machine(), "rows": []}
    for layer in search_quality.chosen(args.tasks):
        told["rows"] += judged(Task(layer, args.keep), args.seeds)
        args.output.write_text(json.dumps(told, separators=(",", ":")))
    print("\n".join(search_page.ranking(told)))


class Task:
    """A task, its template's space and its table."""

    def __init__(self, layer: Layer, keep: Path) -> None:
        described = targets.resolve("auto", 1)
        self.name, target = layer.name, candidate_build.load_target(described)
        workload = layer.workload(target)
        info = layer.info(workload)
        found = template_matching.find(workload, target).template
        assert found is not None, f"{layer.name} has no template"
        self.site = SearchContext(info, workload, target, 1, 1)
        self.space: ConfigSpace = found.space()
        self.points = ConfigSampler(self.space)
        self.table = Table(keep, f"{layer.name} {info.workload} {described}")
        self.stores = StoreFeatures(self.site, found, self.space)
        self._template = found

    def measured(self, seed: int) -> dict[int, float]:
        """What `random` measures with this seed, in its order: configurations and calls per second."""
        tuner = tuner_of(Options(tuner="random"), self.points, seed, 1, None, None)
        search = AutoTvmSearch(self.site.workload, self._template, self.space, tuner, 0)
        found: dict[int, float] = {}
        while len(found) < search_quality.CHECKPOINT:
            chosen = search.select(BATCH)
            if not all(one in self.table for one in chosen):
                break
            latencies = [self.table[one].latency_s for one in chosen]
            answers = [(one, () if s is None else (s,)) for one, s in zip(chosen, latencies, strict=True)]
            search.update(answers)
            for candidate, latency_s in answers:
                number = self.space.find(json.loads(candidate)[2]["config"])
                assert number is not None
                found[number] = throughput(latency_s)
        return found


def judged(task: Task, seeds: int) -> Iterator[Mapping[str, Any]]:
    """A row for each number of records."""
    runs = [found for seed in range(1, seeds + 1) if len(found := task.measured(seed)) >= SIZES[-1]]
    for size in SIZES:
        scores: dict[str, list[Sequence[float]]] = {name: [] for name in search_page.MODELS}
        for number, run in enumerate(runs):
            learned = dict(itertools.islice(run.items(), size))
            others = {index: s for one in runs[:number] + runs[number + 1 :] for index, s in one.items()}
            unseen = {index: s for index, s in others.items() if index not in run}
            actual = np.array(list(unseen.values()))
            for name in search_page.MODELS:
                scores[name].append(score(predicted(task, name, learned, list(unseen)), actual))
        yield {
            "task": task.name, "records": size, "runs": len(runs),
            "scores": {name: [statistics.mean(column) for column in zip(*rows, strict=True)]
                       for name, rows in scores.items() if rows},
        }  # fmt: skip


def predicted(task: Task, model: str, learned: Mapping[int, float], unseen: Sequence[int]) -> NDArray[np.float64]:
    """What a model says of configurations; larger is better."""
    features, digits = KnobFeatures(task.space), task.points.digits(unseen)
    if model == "template alone":
        promise = features.promise(digits)
        return np.asarray(Random(1).sample(range(len(unseen)), len(unseen)) if promise is None else promise, float)
    known = np.array(list(learned.values()), np.float32) / np.float32(max(learned.values()))
    if model == "as it is":
        tuner = ModelBasedTuner(task.points, 1, learning(Options(), 1))
        tuner.learn(list(learned), list(learned.values()))
        predictor = tuner.predictor()
        assert predictor is not None
        return np.asarray(predictor(digits), float)
    fitted = CostModel("rank", 1, 1)
    if model == "stores":
        fitted.fit(task.stores.rows(list(learned)), known)
        return np.asarray(fitted.predict(task.stores.rows(unseen)), float)
    width = len(features.largest)
    fitted.fit(features.of(task.points.digits(list(learned)))[:, :width], known)
    return np.asarray(fitted.predict(features.of(digits)[:, :width]), float)


def score(predictions: NDArray[np.float64], actual: NDArray[np.float64]) -> tuple[float, float, float]:
    """Rank correlation; share of the really best among as many best by prediction; and how many times as long as the
    very best the best of the first ones takes.
    """
    count = max(1, round(TOP * len(actual)))
    order = float(np.corrcoef(_ranks(predictions), _ranks(actual))[0, 1])
    chosen = np.argsort(-predictions, kind="stable")
    best = set(np.argsort(-actual, kind="stable")[:count].tolist())
    return order, len(best & set(chosen[:count].tolist())) / count, float(actual.max() / actual[chosen[:BATCH]].max())


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.empty(len(values))
    found[np.argsort(values, kind="stable")] = np.arange(len(values))
    return found


if __name__ == "__main__":
    main()
