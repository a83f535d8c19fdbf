"""`autosched plugin run`: runs a small job, or one stage of it, in this process, without a daemon, for debuggers."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from autosched import formatting, stages
from autosched.backend import Backend, Evaluation, Lease, Session
from autosched.client import backend_boundary
from autosched.client.plan.job_plan import JobPlan
from autosched.client.stage_runner import StageRunner
from autosched.conformance import plugin_errors
from autosched.errors import AutoschedError, JobFailed, RequestError
from autosched.model import NETWORK_TASK, JobLoad, JobSpec, Record, TaskIndex
from autosched.stages import stage_of

LEASE_S = 600.0
Told = Callable[[str], None]
Watch = Callable[[Callable[[], bool]], bool]
"""Calls a stage, possibly in a debugger; returns whether it has ended."""
METHODS = {"import": "import_network"}
"""Methods of the stages whose method has another name."""
CHOOSING = ("import", "select", "update")
"""Stages that leave no files."""
SIMPLE = {"select": "suggest", "build": "build", "profile": "measure"}
"""Methods that a stage calls of a simple backend. Other stages call several methods, and name the failed one."""


def plainly(work: Callable[[], bool]) -> bool:
    """Call the stage without a debugger."""
    return work()


def of_use(folder: Path, stage: str | None) -> Path | None:
    """Return the folder with files of a trial, if there are any.

    `stage`: the stage that has ended; empty for a whole job, of which only the results matter; None if it has failed.
    """
    wanted = folder / ("job/out" if stage == "" else "job")
    return wanted if stage not in CHOOSING and any(path.is_file() for path in wanted.rglob("*")) else None


def tidy(place: Path, left: Path | None) -> None:
    """Delete all files of a trial except one folder."""
    if left is not None and place in left.parents:
        for other in place.iterdir():
            tidy(other, left)
    elif place.is_dir() and place != left:
        shutil.rmtree(place, ignore_errors=True)
    elif place != left:
        place.unlink(missing_ok=True)


class LocalJob:
    """One job, whose steps run one after the other as the client's plan orders them."""

    def __init__(self, backend: Backend, spec: JobSpec, model: Path, folder: Path, told: Told) -> None:
        """Raises RequestError for unacceptable settings, and PluginFailed for other errors of the backend."""
        cores = sorted(os.sched_getaffinity(0))
        self._lane, self._device = (cores[0],), (cores[-1],)
        self._told = told
        self._plan = JobPlan(spec, lanes=1, devices=1)
        self._name, self._backend, self._begun = spec.backend, backend, set[str]()
        self._session = self._opened(spec, model, folder)
        self._runner = StageRunner(self._session, spec, self._keep)
        self.records: list[Record] = []
        self.evaluation: Evaluation | None = None

    def _opened(self, spec: JobSpec, model: Path, folder: Path) -> Session:
        try:
            return backend_boundary.opened(self._backend, spec, model, folder, 1)
        except AutoschedError:
            raise
        except (Exception, SystemExit) as error:  # boundary to the plugin's code
            raise plugin_errors.failed(
                "open", error, "No stage has begun: the session of the job was to be opened"
            ) from error

    def _keep(self, record: Record) -> None:
        self.records.append(record)
        self._plan.recorded(record)

    def run(self, until: str = "", watch: Watch = plainly) -> None:
        """Run to the end, or to the end of the first step of a stage, which is the one that is watched.

        Raises PluginFailed if the backend's code fails, its own errors if it explains them, and JobFailed if the plan
        ends without a result.
        """
        waiting = {load.task: load for load in self._plan.load().tasks}
        try:
            while waiting:
                task = next(iter(waiting))
                stage = waiting.pop(task).stage_next
                here = watch if stage == until or not until else plainly
                load = self._step(task, stage, here)
                if stage == until:
                    return
                waiting.update((one.task, one) for one in load.tasks if one.stage_next and one.stage_done)
                if load.failure is not None:
                    raise JobFailed(load.failure.message)
            if until:
                raise RequestError(f"the job ended without a step of the stage {until!r}; give it more --trials")
        finally:
            self._runner.kill()

    def _step(self, task: TaskIndex, stage: str, watch: Watch) -> JobLoad:
        device = stage_of(stage).on_device
        cores = self._device if device else self._lane
        lease = Lease(stage=stage, units=("cpu0" if device else "host/0",), cores=cores, timeout_s=LEASE_S)
        self._plan.started(task, stage)
        before = len(self.records)
        of = "the whole" if task == NETWORK_TASK else f"task {task}"
        first = stage not in self._begun
        self._begun.add(stage)
        try:
            watch(lambda: self._stage(task, stage, lease))
        except AutoschedError:
            self._told(f"{stage:9}{of}: failed{self._written(task, stage)}")
            raise
        except (Exception, SystemExit) as error:  # boundary to the plugin's code
            self._told(f"{stage:9}{of}: failed{self._written(task, stage)}")
            only = f"--stage {stage} " if first else ""
            to_do = f"Stop there, with its variables at hand:  autosched plugin run {self._name} {only}--pdb"
            raise plugin_errors.failed(METHODS.get(stage, stage), error, to_do) from error
        self._told(f"{stage:9}{of}{self._news(before)}")
        return self._plan.take_changes(task)

    def _written(self, task: TaskIndex, stage: str) -> str:
        """Position of the plugin's method for the stage, unless that is one of ours."""
        owner = self._session if task == NETWORK_TASK else self._runner.tuner(task)
        methods = (getattr(owner, METHODS.get(stage, stage), None), getattr(self._backend, SIMPLE.get(stage, ""), None))
        return f", its code begins at {where}" if (where := plugin_errors.written(*methods)) else ""

    def _news(self, before: int) -> str:
        new = self.records[before:]
        best_s = min((record.best_s for record in new if record.best_s is not None), default=None)
        failed = [record for record in new if record.failure is not None]
        words = f": {len(new)} measured" if new else ""
        words += f", best {formatting.latency(best_s)}" if best_s is not None else ""
        return words + (f", {len(failed)} failed, {failed[0].failure}: {failed[0].detail}" if failed else "")

    def _stage(self, task: TaskIndex, stage: str, lease: Lease) -> bool:
        plan, runner = self._plan, self._runner
        current = plan.current(task)
        match stage:
            case stages.IMPORT:
                network = runner.import_network(lease, ())
                plan.imported(network, (), finals=runner.comparable())
            case stages.SELECT:
                plan.selected(task, runner.select(task, current, lease))
            case stages.BUILD:
                runner.build(task, current, lease)
                plan.advanced(task)
            case stages.PROFILE:
                runner.profile(task, current, lease)
                plan.advanced(task)
            case stages.UPDATE:
                plan.updated(task, runner.update(task, current, lease))
            case stages.COMPILE:
                runner.compile([record for state in plan.tasks.values() for record in state.records], lease)
                plan.compiled()
            case _:
                self.evaluation = runner.evaluate(lease)
                plan.evaluated()
        return True
