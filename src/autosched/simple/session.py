"""Session of a simple backend: its stages, composed of the author's three methods."""

import hashlib
import itertools
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from math import inf, isfinite
from pathlib import Path
from statistics import median

import msgspec

from autosched.backend import Built, Earlier, Evaluation, Lease, Measured, Network, Session, Tuner
from autosched.errors import ModelRejected, RequestError, StepFailed, from_wire
from autosched.model import Failure, Identity, JobSpec, Record, TaskIndex, TaskInfo
from autosched.records import record_selection, winner
from autosched.records.statistics import summarize
from autosched.simple import Choice, Job, Run, SimpleBackend, Space, Tried
from autosched.simple.child_manager import TIMED_OUT, Children
from autosched.simple.child_process import CRASHED, Answer, Item, Order, called, code_of, entry_of
from autosched.simple.search import decode, encode
from autosched.stages import IMPORT

MEASUREMENT = "simple 1"
"""Name of the timing method; its number grows with each change that alters latencies."""
COMPARED = 3
"""Number of turns in a task's finals."""
HEARD_MAX = 4
"""Maximum number of the best candidates of earlier jobs that are tried: the very best is partly luck."""
EVALUATED = 9
"""Number of turns in which default and tuned choices are measured at the end: enough for a 95 % interval without the
extremes."""


class SimpleSession(Session):
    """One job."""

    learns = parallel_profile = True

    def __init__(self, backend: SimpleBackend, spec: JobSpec, job: Job, workdir: Path, outdir: Path) -> None:
        self.backend, self.workdir = backend, workdir
        self._spec, self._job, self._outdir = spec, job, outdir
        self._children = Children()
        self._spaces: dict[TaskIndex, Space] = {}
        self._references: dict[TaskIndex, tuple[float, ...]] = {}
        """Outputs of each task's default choice."""
        self._best: dict[TaskIndex, Choice] = {}
        self._earlier: defaultdict[str, list[dict[bytes, float]]] = defaultdict(list)
        """Candidates that worked in earlier jobs, with their seconds, by the similarity key of the task."""
        self._numbers = itertools.count()
        for folder in (self.builds, self.final):
            shutil.rmtree(folder, ignore_errors=True)  # an earlier client may have been killed halfway
            folder.mkdir(parents=True)

    @property
    def builds(self) -> Path:
        """Folder of candidates' builds."""
        return self.workdir / "builds"

    @property
    def final(self) -> Path:
        """Folder of the builds of each task's best choice and default."""
        return self.workdir / "final"

    # The whole --------------------------------------------------------------------------------------------------------

    def import_network(self, lease: Lease) -> Network:
        """Get the spaces, and run the default of each for its outputs. Raises ModelRejected."""
        answer = self._children.one(self._order("spaces"), lease)
        if answer.code in (CRASHED, TIMED_OUT):
            # a lack of time or, mostly, of memory
            short = answer.code == TIMED_OUT or signal.SIGKILL.name in answer.error
            advice = "Try a smaller model" if short else "Mend it"
            raise ModelRejected(f"the backend's spaces() did not answer: {answer.error}. {advice}")
        if answer.error:
            said = answer.error if answer.error.startswith("spaces()") else f"spaces(): {answer.error}"
            raise from_wire(answer.code, answer.error) if answer.code else ModelRejected(said)
        self._spaces = dict(enumerate(answer.spaces, 1))
        for task, space in self._spaces.items():
            _check(space)
            default = self._final(task, space.default)
            self._must("build", [default], lease)
            self._references[task] = self._must("measure", [default], lease)[0].output
        kind = self.backend
        circumstances = [self._spec.model, self._order("spaces").options, code_of(type(kind))]
        tasks = tuple(_info(task, space, circumstances) for task, space in self._spaces.items())
        return Network(
            tasks=tasks, default_trials=kind.trials_per_task * len(tasks), batch=kind.batch,
            identity=Identity(compiler=kind.compiler(self._job), measurement=MEASUREMENT),
        )  # fmt: skip

    def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
        """Try the best candidates of earlier jobs first, of any model, for tasks with the same name and knobs.

        Raises RequestError for a job of another backend.
        """
        for one in earlier:
            if one.spec.backend != self._spec.backend:
                raise RequestError(
                    f"job {one.job} was tuned with backend {one.spec.backend!r}, which teaches"
                    f" {self._spec.backend!r} nothing: submit again without learning from it"
                )
            for task, records in record_selection.by_task(one.records).items():
                worked = {record.candidate: best_s for record in records if (best_s := record.best_s) is not None}
                self._earlier[_kin(one.workloads.get(task, ""))].append(worked)

    def _heard(self, task: TaskInfo) -> list[bytes]:
        """The best candidates of earlier jobs for similar tasks, by their ratio to the best of their job."""
        ratios: dict[bytes, float] = {}
        for worked in self._earlier[_kin(task.workload)]:
            least_s = min(worked.values(), default=inf)
            for candidate, best_s in worked.items():
                ratios[candidate] = min(best_s / least_s, ratios.get(candidate, inf))
        valid = [candidate for candidate in ratios if decode(self._spaces[task.task], candidate) is not None]
        return nsmallest(HEARD_MAX, valid, key=lambda candidate: (ratios[candidate], candidate))

    def tuner(self, task: TaskInfo, seed: int) -> "SimpleTuner":
        """The search for one task."""
        return SimpleTuner(self, task.task, self._spaces[task.task], seed, self._heard(task))

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Build the fastest choice of each task, and its default."""
        for task, space in self._spaces.items():
            own = winner.in_order([record for record in records if record.task == task])
            valid = [choice for record in own if (choice := decode(space, record.candidate)) is not None]
            self._best[task] = valid[0] if valid else space.default
            self._must("build", [self._final(task, space.default), self._final(task, self._best[task])], lease)

    def evaluate(self, lease: Lease) -> Evaluation:
        """Measure default and tuned in turns; publish the faster one."""
        latency_s = {"default": [0.0] * EVALUATED, "tuned": [0.0] * EVALUATED}
        error = 0.0
        for task, space in self._spaces.items():
            pair = [self._final(task, space.default), self._final(task, self._best[task])]
            for index, run in enumerate(self._must("measure", pair * EVALUATED, lease)):
                turn, tuned = divmod(index, 2)
                latency_s["tuned" if tuned else "default"][turn] += space.weight * median(run.latency_s)
                error = max(error, self._difference(task, run))
        timings = tuple(summarize(name, samples_s) for name, samples_s in latency_s.items())
        faster = timings[1].median_s < timings[0].median_s
        chosen = {task: self._best[task] if faster else space.default for task, space in self._spaces.items()}
        self._outdir.mkdir(parents=True, exist_ok=True)
        items = tuple(self._final(task, choice) for task, choice in chosen.items())
        order = msgspec.structs.replace(self._order("publish"), outdir=str(self._outdir), items=items)
        if said := self._children.one(order, lease).error:
            raise StepFailed(f"publish() failed: {said}")
        return Evaluation(
            timings=timings, reference="the default choice", outputs_equal=error <= self.backend.tolerance,
            max_abs_error=error, tolerance=self.backend.tolerance, cores=lease.cores,
            published="tuned" if faster else "default",
        )  # fmt: skip

    def kill(self, lease: Lease | None = None) -> None:
        """Kill the children of a lease, or of all leases."""
        self._children.kill(lease)

    # What tuners need -------------------------------------------------------------------------------------------------

    def answers(self, method: str, items: Sequence[Item], lease: Lease) -> Iterator[Answer]:
        """Build or measure each item."""
        kind = self.backend
        timeout_s = kind.build_timeout_s if method == "build" else kind.run_timeout_s
        return self._children.each(self._order(method), items, lease, timeout_s)

    def judged(self, task: TaskIndex, candidate: bytes, answer: Answer) -> Measured:
        """Validate a measurement: outputs that differ from the default's make it a failure."""
        if answer.error:
            return Measured(candidate, (), _failure("measure", answer), answer.error)
        if (error := self._difference(task, answer.run)) > self.backend.tolerance:
            said = f"its outputs differ from those of the default by {error:.3g}, allowed {self.backend.tolerance:.3g}"
            return Measured(candidate, (), Failure.WRONG_RESULT, said)
        return Measured(candidate, answer.run.latency_s)

    def _difference(self, task: TaskIndex, run: Run) -> float:
        """The largest difference to the default's outputs, relative to the larger of 1 and the value."""
        expected = self._references[task]
        if len(expected) != len(run.output):
            return float("inf")
        pairs = zip(expected, run.output, strict=True)
        return max((abs(a - b) / max(1.0, abs(a)) if isfinite(b) else float("inf") for a, b in pairs), default=0.0)

    def _must(self, method: str, items: Sequence[Item], lease: Lease) -> list[Run]:
        """Build or measure items that must work for the job to continue."""
        runs = []
        for item, answer in zip(items, self.answers(method, items, lease), strict=True):
            if said := answer.error or (_nonsense(answer.run, lease) if method == "measure" else ""):
                what = f"{method} of {item.space.name} with {encode(item.choice).decode()} failed: {said}"
                if lease.stage == IMPORT:
                    raise ModelRejected(
                        f"without any tuning already, {what}. Mend the model or the backend's {method}()"
                    )
                raise StepFailed(what)
            runs.append(answer.run)
        return runs

    def _final(self, task: TaskIndex, choice: Choice) -> Item:
        return Item(self._spaces[task], choice, str(_folder(self.final, task, choice)))

    def fresh(self, task: TaskIndex, candidate: bytes) -> Item | None:
        """A candidate and a new folder to build it in; None if it is not in the task's space."""
        choice = decode(self._spaces[task], candidate)
        return None if choice is None else Item(self._spaces[task], choice, str(self.builds / str(next(self._numbers))))

    def there(self, task: TaskIndex, built: Sequence[Built]) -> dict[bytes, Item]:
        """The builds, by candidate."""
        found = ((one, decode(self._spaces[task], one.candidate)) for one in built if one.failure is None)
        return {one.candidate: Item(self._spaces[task], choice, str(one.artifact)) for one, choice in found if choice}

    def _order(self, method: str) -> Order:
        job, options = self._job, msgspec.Raw(msgspec.json.encode(self._job.options))
        return Order(
            backend=entry_of(self.backend), method=method, name=job.name, model=str(job.model), options=options,
            target=job.target, cores=(),
        )  # fmt: skip


class SimpleTuner(Tuner):
    """The search of one task: the measured candidates, in order."""

    def __init__(
        self, session: SimpleSession, task: TaskIndex, space: Space, seed: int, heard: Sequence[bytes] = ()
    ) -> None:
        self._session, self._task, self._space, self._seed, self._heard = session, task, space, seed, heard
        self._tried: dict[bytes, Tried] = {}

    def restore(self, records: Sequence[Record]) -> None:
        """Take over all records that can be decoded."""
        for record in records:
            self._learn(record.candidate, record.best_s)

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """Select the best candidates of earlier jobs, then the author's suggestions, without those already tried."""
        found = self._session.backend.suggest(self._space, self._seed, tuple(self._tried.values()), count)
        if not isinstance(found, Iterable):
            raise StepFailed(f"suggest() must return [choice, ...], it returned {called(found)}")
        fresh = dict.fromkeys([*self._heard, *(encode(choice) for choice in found)])
        return [one for one in fresh if one not in self._tried][:count]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Build each candidate in a separate folder."""
        found = ((candidate, self._session.fresh(self._task, candidate)) for candidate in candidates)
        items = {candidate: item for candidate, item in found if item is not None}
        answers = dict(zip(items, self._session.answers("build", list(items.values()), lease), strict=True))
        return [self._built(candidate, items.get(candidate), answers.get(candidate)) for candidate in candidates]

    @staticmethod
    def _built(candidate: bytes, item: Item | None, answer: Answer | None) -> Built:
        if item is None or answer is None:
            return Built(candidate, failure=Failure.BUILD_ERROR, detail="this is no choice of the task's space")
        if answer.error:
            return Built(candidate, failure=_failure("build", answer), detail=answer.error)
        return Built(candidate, artifact=Path(item.folder), code=answer.digest)

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure the builds one after the other."""
        yield from (Measured(one.candidate, (), one.failure, one.detail) for one in built if one.failure is not None)
        good = self._session.there(self._task, built)
        for candidate, answer in zip(good, self._session.answers("measure", list(good.values()), lease), strict=True):
            yield self._session.judged(self._task, candidate, answer)
            shutil.rmtree(good[candidate].folder, ignore_errors=True)

    def default(self) -> bytes | None:
        """The choice without tuning."""
        return encode(self._space.default)

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure in turns; a choice that fails once has failed."""
        good = self._session.there(self._task, built)
        found: dict[bytes, list[Measured]] = {candidate: [] for candidate in good}
        turns = list(good) * COMPARED
        answers = self._session.answers("measure", [good[candidate] for candidate in turns], lease)
        for candidate, answer in zip(turns, answers, strict=True):
            found[candidate].append(self._session.judged(self._task, candidate, answer))
        for item in good.values():
            shutil.rmtree(item.folder, ignore_errors=True)
        for one in built:
            if one.failure is not None:
                yield Measured(one.candidate, (), one.failure, one.detail)
                continue
            runs = found[one.candidate]
            failed = next((run for run in runs if run.failure is not None), None)
            yield failed or Measured(one.candidate, tuple(s for run in runs for s in run.latency_s))

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Store the measurements."""
        for one in measured:
            self._learn(one.candidate, median(one.latency_s) if one.latency_s else None)

    def _learn(self, candidate: bytes, latency_s: float | None) -> None:
        if (choice := decode(self._space, candidate)) is not None:
            self._tried[candidate] = choice, latency_s


def _folder(parent: Path, task: TaskIndex, choice: Choice) -> Path:
    return parent / f"{task}-{hashlib.sha256(encode(choice)).hexdigest()[:16]}"


def _check(space: Space) -> None:
    if space.default.keys() != space.knobs.keys() or not all(space.knobs.values()):
        knobs = {knob: len(values) for knob, values in space.knobs.items()}
        raise ModelRejected(
            f"task {space.name} has these numbers of values: {knobs}, and a default for {list(space.default)}."
            " Every knob needs one value or more, and a default"
        )


def _nonsense(run: Run, lease: Lease) -> str:
    """Why a measurement is invalid; empty if it is valid."""
    if not run.latency_s:
        return "it measured no latency"
    if bad := [seconds for seconds in run.latency_s if not 0 < seconds < inf]:
        return f"it measured a latency of {bad[0]} s"
    if lease.stage == IMPORT and (bad := [value for value in run.output if not isfinite(value)]):
        return f"it computed {bad[0]}, with which nothing can be compared"
    return ""


def _info(task: TaskIndex, space: Space, circumstances: Sequence[object]) -> TaskInfo:
    """Describe a task. Equal workloads share failures and times, so that everything that affects a choice is in the
    workload: the space, the model, the options and the author's code. The workload begins with a key that similar tasks
    share."""
    kin = hashlib.sha256(msgspec.json.encode([space.name, space.knobs])).hexdigest()
    own = hashlib.sha256(msgspec.json.encode([space.shape, space.default, *circumstances])).hexdigest()
    return TaskInfo(
        task=task, name=space.name, workload=f"{kin[:16]}-{own[:16]}", weight=space.weight, flops=space.flops,
        shape=space.shape,
    )  # fmt: skip


def _kin(workload: str) -> str:
    return workload.partition("-")[0]


def _failure(method: str, answer: Answer) -> Failure:
    if answer.failure:
        return Failure(answer.failure)
    building = method == "build"
    if answer.code == CRASHED:
        return Failure.BUILD_CRASH if building else Failure.RUN_CRASH
    if answer.code == TIMED_OUT:
        return Failure.BUILD_TIMEOUT if building else Failure.RUN_TIMEOUT
    return Failure.BUILD_ERROR if building else Failure.RUN_ERROR
