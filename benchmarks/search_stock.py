"""TVM's own evolutionary search, database and cost model, behind our interface, for comparisons."""

import logging
from collections.abc import Sequence
from typing import Any

from tvm.s_tir import meta_schedule as ms

from autosched_backend_ansor.options import Options
from autosched_tvm.tuning import schedule_traces
from autosched_tvm.tuning.search_method import SearchContext
from autosched_tvm.tuning.sketch_space import quiet

DEFAULTS = Options()
SETTINGS = ("population_size", "init_min_unmeasured", "genetic_num_iters", "eps_greedy")
"""Settings equal to the backend's; with TVM's own, a round of 8 takes half a minute."""


class StockSearch:
    """The work of `tune_tasks` on one task, between its builds and measurements."""

    def __init__(self, site: SearchContext, batch: int) -> None:
        quiet()
        strategy = ms.SearchStrategy.create("evolutionary", **{name: getattr(DEFAULTS, name) for name in SETTINGS})
        logger = logging.getLogger("autosched_tvm.search")
        self._context = ms.TuneContext(
            mod=site.workload, target=site.target, space_generator="post-order-apply", search_strategy=strategy,
            task_name="task", logger=logger, rand_state=site.seed, num_threads=site.threads,
        )  # fmt: skip
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(site.workload)
        self._target = site.target
        self._model = ms.cost_model.XGBModel(
            num_warmup_samples=DEFAULTS.num_warmup_samples, num_tuning_cores=site.threads
        )
        self._context.pre_tuning(2**30, batch, self._context.generate_design_space(), self._database, self._model)
        self._given: dict[bytes, Any] = {}

    def select(self, count: int) -> list[bytes]:
        """Returns the next round."""
        found = self._context.generate_measure_candidates() or []
        given = {schedule_traces.write(one.sch.trace.as_json()): one for one in list(found)[:count]}
        self._given.update(given)
        return list(given)

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Updates strategy, database and model, as TVM's measure callbacks do."""
        candidates = [self._given.pop(candidate) for candidate, _ in measured]
        results = [ms.runner.RunnerResult(list(s) or None, None if s else "failed") for _, s in measured]
        self._context.notify_runner_results(candidates, results)
        for candidate, (_, latency_s) in zip(candidates, measured, strict=True):
            self._database.commit_tuning_record(
                ms.database.TuningRecord(
                    candidate.sch.trace, self._workload, list(latency_s) or [1e10], self._target, candidate.args_info
                )
            )
        self._model.update(self._context, candidates, results)
