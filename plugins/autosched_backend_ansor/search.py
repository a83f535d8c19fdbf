"""The search of one task: MetaSchedule's evolutionary search and cost model, without its builders and runners."""

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from autosched.tvm import building
from autosched.tvm.searching import Site
from autosched_backend_ansor.options import Options

FAILED_S = 1e10
"""What MetaSchedule takes for the latency of a candidate that failed."""
SELECT_ATTEMPTS = 3
LOG = logging.getLogger("autosched.tvm.search")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False


class SharedModel:
    """One cost model for all tasks of a job; what is learned from one helps the others."""

    def __init__(self, options: Options, threads: int) -> None:
        self.lock = threading.Lock()
        self.samples = 0
        self.warm_at = options.num_warmup_samples
        self.inner = ms.cost_model.XGBModel(num_warmup_samples=0, num_tuning_cores=threads)


@derived_object
class TaskModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """One task's view of the shared model: seeded random scores until that has seen enough."""

    def __init__(self, shared: SharedModel, seed: int) -> None:
        super().__init__()
        self.shared = shared
        self.random = np.random.default_rng(seed)

    def load(self, path: str) -> None:
        """Rebuilt from records instead."""
        raise NotImplementedError

    def save(self, path: str) -> None:
        """Rebuilt from records instead."""
        raise NotImplementedError

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        """Train on new measurements."""
        with self.shared.lock:
            self.shared.inner.update(context, candidates, results)
            self.shared.samples += len(candidates)

    def predict(self, context: Any, candidates: Any) -> Any:
        """Scores; larger is better."""
        with self.shared.lock:
            if self.shared.samples < self.shared.warm_at:
                return self.random.uniform(size=len(candidates))
            return np.asarray(self.shared.inner.predict(context, candidates), "float64")


class AnsorMethod:
    """The searches of one job."""

    notes: Sequence[str] = ()

    def __init__(self, options: Options, threads: int) -> None:
        quiet()
        self._options = options
        self._model = SharedModel(options, threads)

    def search(self, site: Site) -> "AnsorSearch":
        """Begin the search for a task."""
        return AnsorSearch(site, self._options, self._model)


class AnsorSearch:
    """A task's search state; everything in it comes from the workload, the seed and the measurements."""

    def __init__(self, site: Site, options: Options, model: SharedModel) -> None:
        self._workload = site.workload
        self._target = site.target
        self._database = ms.database.MemoryDatabase()
        self._own = self._database.commit_workload(site.workload)
        self._model = TaskModel(model, site.seed)
        self._known: set[int] = set()
        self._spare: list[Any] = []
        self._scheduled: dict[bytes, Any] = {}
        self._context = ms.TuneContext(
            mod=site.workload, target=site.target, space_generator="post-order-apply", task_name="task", logger=LOG,
            rand_state=site.seed, num_threads=site.threads,
            search_strategy=ms.SearchStrategy.create(
                "evolutionary", population_size=options.population_size, eps_greedy=options.eps_greedy,
                init_min_unmeasured=options.init_min_unmeasured, genetic_num_iters=options.genetic_num_iters,
            ),
        )  # fmt: skip
        self._batch = options.batch
        self._started = False

    def select(self, count: int) -> list[bytes]:
        """Up to `count` candidates that were neither measured nor selected before; empty when there are no more."""
        self._start()
        chosen = self._take_spare(count)
        for _ in range(SELECT_ATTEMPTS * -(-count // self._batch)):
            if len(chosen) == count or (found := self._context.generate_measure_candidates()) is None:
                break
            self._spare = [candidate for candidate in found if self._remember(candidate)][::-1]
            chosen += self._take_spare(count - len(chosen))
        return [self._encode(candidate) for candidate in chosen]

    def _take_spare(self, count: int) -> list[Any]:
        return [self._spare.pop() for _ in range(min(count, len(self._spare)))]

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Learn from (candidate, latencies in seconds; empty for a failure)."""
        self._start()
        candidates = [self._decode(candidate) for candidate, _ in measured]
        known = [(c, s) for c, (_, s) in zip(candidates, measured, strict=True) if c is not None]
        if not known:
            return
        results = [
            ms.runner.RunnerResult([float(s) for s in latency_s] or None, None if latency_s else "failed")
            for _, latency_s in known
        ]
        strategy_candidates = [candidate for candidate, _ in known]
        self._context.notify_runner_results(strategy_candidates, results)
        for candidate, latency_s in known:
            trace, args = candidate.sch.trace, candidate.args_info
            seconds = [float(s) for s in latency_s] or [FAILED_S]
            self._database.commit_tuning_record(ms.database.TuningRecord(trace, self._own, seconds, self._target, args))
        self._model.update(self._context, strategy_candidates, results)

    def _start(self) -> None:
        if not self._started:
            self._context.pre_tuning(
                2**30, self._batch, self._context.generate_design_space(), self._database, self._model
            )
            self._started = True

    def _remember(self, candidate: Any) -> bool:
        """Whether nobody has seen this schedule."""
        key = tvm_ffi.structural_hash(candidate.sch.mod)
        if key in self._known:
            return False
        self._known.add(key)
        return True

    def _encode(self, candidate: Any) -> bytes:
        text = json.dumps(
            candidate.sch.trace.as_json(), default=lambda number: number.value, separators=(",", ":")
        ).encode()
        self._scheduled[text] = candidate
        return text

    def _decode(self, text: bytes) -> Any | None:
        """The scheduled workload; None for a schedule that does not fit it."""
        candidate = self._scheduled.pop(text, None)
        if candidate is not None:
            return candidate
        try:
            schedule = building.replay(self._workload, text)
        except Exception:  # a record of another version of the task; nothing can be learned from it
            return None
        candidate = ms.search_strategy.MeasureCandidate(
            schedule, ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        )
        self._remember(candidate)
        return candidate


def quiet() -> None:
    """Give pooling operators the custom schedule rule that TVM looks for and complains about: none."""
    for name in ("pool_max", "pool_avg", "pool_sum"):
        full = f"s_tir.meta_schedule.cpu.meta_schedule.{name}"
        if tvm.get_global_func(full, allow_missing=True) is None:
            tvm.register_global_func(full, lambda schedule, _block: [schedule])
