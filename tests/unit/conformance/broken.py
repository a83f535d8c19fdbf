"""A valid backend without a compiler, and one that violates a single requirement for each check."""

import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from autosched import backend
from autosched.backend import Baseline, Built, Earlier, Evaluation, Lease, Measured, Network, Timing
from autosched.errors import RequestError, StepFailed
from autosched.model import Failure, JobSpec, Record, TaskInfo

DEFAULT = b"default"
LEFT = count()


class Tuner(backend.Tuner):
    """Tries numbers in the seed's order."""

    def __init__(self, session: "Session", seed: int) -> None:
        self.session = session
        self.order = random.Random(seed).sample(range(1000), 1000)
        self.tried: set[bytes] = set()

    def restore(self, records: Sequence[Record]) -> None:
        self.tried.update(record.candidate for record in records)

    def select(self, count: int, lease: Lease) -> Sequence[Any]:
        order = dict.fromkeys([*self.session.heard, *(b"%d" % number for number in self.order)])
        return [one for one in order if one not in self.tried][:count]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        self.session.wait(lease)
        return [self.made(one) for one in candidates]

    def made(self, candidate: bytes) -> Built:
        if candidate != DEFAULT and not candidate.isdigit():
            return Built(candidate, failure=Failure.BUILD_ERROR, detail="no number")
        artifact = self.session.workdir / candidate.decode()
        artifact.write_bytes(candidate)
        return Built(candidate, artifact, code=candidate.hex())

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Any]:
        self.session.wait(lease)
        yield from map(self.run, built)

    def run(self, one: Built) -> Measured:
        if one.failure is not None:
            return Measured(one.candidate, (), one.failure, one.detail)
        return Measured(one.candidate, (1e-3 if one.candidate == DEFAULT else 1e-4,) * 3)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        self.tried.update(one.candidate for one in measured)

    def default(self) -> Any:
        return DEFAULT

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        return self.profile(built, lease)


class Session(backend.Session):
    """Session of one job."""

    tuner_type: type[Tuner] = Tuner
    learns = compares = movable = parallel_profile = True

    def __init__(self, workdir: Path, outdir: Path) -> None:
        self.workdir, self.outdir = workdir, outdir
        self.workdir.mkdir(parents=True, exist_ok=True)
        self.heard: list[bytes] = []
        self.killed: dict[int, tuple[Lease, threading.Event]] = {}

    def wait(self, lease: Lease) -> None:
        """Marks the work of a stage."""
        if self.event(lease).wait(0.001):
            raise StepFailed("killed")

    def event(self, lease: Lease) -> threading.Event:
        return self.killed.setdefault(id(lease), (lease, threading.Event()))[1]

    def import_network(self, lease: Lease) -> Network:
        return Network((TaskInfo(task=1, name="toy", workload="toy"),), default_trials=8)

    def import_tasks(self, lease: Lease) -> Network:
        return self.import_network(lease)

    def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
        self.heard = [record.candidate for one in earlier for record in one.records if record.failure is None]

    def tuner(self, task: TaskInfo, seed: int) -> Tuner:
        return self.tuner_type(self, seed)

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        self.best = min((record.best_s for record in records if record.best_s is not None), default=None)

    def evaluate(self, lease: Lease) -> Any:
        (self.outdir / "toy.json").write_text("{}")
        timings = tuple(Timing(name, (1e-3,) * 3, 1e-3, 1e-3, 1e-3) for name in ("default", "tuned"))
        return Evaluation(timings, "itself", True, 0.0, 0.0, (), "tuned")

    def baseline(self, lease: Lease) -> Any:
        return Baseline("a library", "1.0", "as it is", 1e-2, 1e-2, 1e-2)

    def compile_early(self, records: Sequence[Record], lease: Lease) -> None:
        self.compile(records, lease)

    def evaluate_early(self, lease: Lease) -> Any:
        return self.evaluate(lease)

    def kill(self, lease: Lease | None = None) -> None:
        if lease is not None:
            self.event(lease).set()
        else:
            for _, event in list(self.killed.values()):
                event.set()


class Good:
    """A valid backend."""

    api: Any = (2, 0)
    session: type[Session] = Session

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        for name in job.options:
            raise RequestError(f"there is no option {name}")
        return self.session(workdir, outdir)


def of(tuner: type[Tuner]) -> type[Session]:
    """Returns a session class with another tuner."""
    return type("Of", (Session,), {"tuner_type": tuner})


class the_interface_version_is_accepted(Good):
    api = (1, 8)


class a_session_opens(Good):
    def open(self, job: JobSpec, *rest: Any) -> Session:
        raise RequestError("today there is nothing to tune")


class the_model_is_imported(Good):
    class session(Session):
        def import_network(self, lease: Lease) -> Network:
            raise RequestError("the default fails: no device")


class imports_nothing(Good):
    class session(Session):
        def import_network(self, lease: Lease) -> Any:
            return None


class imports_with_a_bug(Good):
    class session(Session):
        def import_network(self, lease: Lease) -> Network:
            return {}["tasks"]  # type: ignore[no-any-return]


class an_unknown_option_is_refused(Good):
    def open(self, job: JobSpec, *rest: Any) -> Session:
        return super().open(replace(job, options={}), *rest)


class garbage_is_no_model(Good):
    def open(self, job: JobSpec, model: Path, *rest: Any) -> Session:
        model.read_text(encoding="utf-8")
        return super().open(job, model, *rest)


class the_network_is_valid(Good):
    class session(Session):
        def import_network(self, lease: Lease) -> Network:
            return Network((TaskInfo(task=2, name="toy", workload="toy"),))


class the_network_is_the_same_again(Good):
    class session(Session):
        def import_network(self, lease: Lease) -> Network:
            return Network((TaskInfo(task=1, name="toy", workload=f"toy {next(LEFT)}"),))


class build_answers_each_candidate(Good):
    class T(Tuner):
        def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
            return list(super().build(candidates, lease))[1:]

    session = of(T)


class equal_candidates_have_equal_code(Good):
    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            return replace(super().made(candidate), code=f"{id(self.session):x}")

    session = of(T)


class artifacts_lie_in_the_work_folder(Good):
    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            return Built(candidate, Path("/tmp/artifact"))

    session = of(T)


class a_build_is_measured_in_another_session(Good):
    class T(Tuner):
        def run(self, one: Built) -> Measured:
            if one.artifact is not None and not (self.session.workdir / one.artifact.name).exists():
                return Measured(one.candidate, (), Failure.RUN_ERROR, "no such file")
            return super().run(one)

    session = of(T)


class a_round_is_measured_by_several_devices(Good):
    class T(Tuner):
        def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
            self.mine = list(built)
            self.session.event(lease).wait(0.1)  # the other call begins meanwhile
            return super().profile(self.mine, lease)

    session = of(T)


class a_candidate_that_makes_no_sense_fails_alone(Good):
    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            if candidate != DEFAULT:
                int(candidate)
            return super().made(candidate)

    session = of(T)


class a_failed_build_is_passed_on(Good):
    class T(Tuner):
        def run(self, one: Built) -> Measured:
            return Measured(one.candidate, (1e-3,))

    session = of(T)


class profile_answers_each_candidate(Good):
    class T(Tuner):
        def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
            yield from list(super().profile(built, lease))[1:]

    session = of(T)


class measures_nan(Good):
    latency_s: Any = float("nan")

    class T(Tuner):
        def run(self, one: Built) -> Measured:
            backend = measures_nan if one.failure else self.session.backend  # type: ignore[attr-defined]
            return Measured(one.candidate, () if one.failure else (backend.latency_s,), one.failure, one.detail)

    def open(self, *words: Any) -> Session:
        session = of(self.T)(Path(words[2]), Path(words[3]))
        session.backend = self  # type: ignore[attr-defined]
        return session


class measures_less_than_nothing(measures_nan):
    latency_s = -1e-3


class measures_for_ever(measures_nan):
    latency_s = float("inf")


class measures_in_words(measures_nan):
    latency_s = "fast"


class a_measurement_is_a_latency_or_a_failure(Good):
    class T(Tuner):
        def run(self, one: Built) -> Measured:
            return Measured(one.candidate)

    session = of(T)


class compare_ends_with_the_default(Good):
    class T(Tuner):
        def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
            return self.profile(list(reversed(built)), lease)

    session = of(T)


class the_job_ends_with_an_evaluation(Good):
    class session(Session):
        def evaluate(self, lease: Lease) -> Any:
            timings = tuple(Timing(name, (), *(float("nan"),) * 3) for name in ("default", "tuned"))
            return Evaluation(timings, "itself", True, 0.0, 0.0, (), "tuned")


class a_job_without_luck_ends_too(Good):
    class session(Session):
        def compile(self, records: Sequence[Record], lease: Lease) -> None:
            self.best = min(record.best_s for record in records if record.best_s is not None)


class results_have_plain_names(Good):
    class session(Session):
        def evaluate(self, lease: Lease) -> Any:
            (self.outdir / "my result.json").write_text("{}")
            return super().evaluate(lease)


class select_gives_bytes(Good):
    class T(Tuner):
        def select(self, count: int, lease: Lease) -> Sequence[Any]:
            return [one.decode() for one in super().select(count, lease)]

    session = of(T)


class selects_giants(Good):
    class T(Tuner):
        def select(self, count: int, lease: Lease) -> Sequence[Any]:
            return [one.rjust(300_000, b"0") for one in super().select(count, lease)]

    session = of(T)


class select_keeps_to_its_count(Good):
    class T(Tuner):
        def select(self, count: int, lease: Lease) -> Sequence[Any]:
            return super().select(count + 1, lease)

    session = of(T)


class select_is_pure(Good):
    class T(Tuner):
        def select(self, count: int, lease: Lease) -> Sequence[Any]:
            found = super().select(count, lease)
            self.tried.update(found)
            return found

    session = of(T)


class the_same_seed_selects_the_same(Good):
    class T(Tuner):
        def __init__(self, session: Session, seed: int) -> None:
            super().__init__(session, time.monotonic_ns())

    session = of(T)


class select_never_repeats(Good):
    class T(Tuner):
        def update(self, measured: Sequence[Measured], lease: Lease) -> None:
            pass

    session = of(T)


class a_restored_search_goes_on(Good):
    class T(Tuner):
        def restore(self, records: Sequence[Record]) -> None:
            pass

    session = of(T)


class restoring_twice_gives_the_same(Good):
    class T(Tuner):
        def restore(self, records: Sequence[Record]) -> None:
            super().restore(records)
            random.shuffle(self.order)

    session = of(T)


class restore_takes_any_record(Good):
    class T(Tuner):
        def restore(self, records: Sequence[Record]) -> None:
            self.tried.update(b"%d" % int(record.candidate) for record in records)

    session = of(T)


class update_takes_failures(Good):
    class T(Tuner):
        def update(self, measured: Sequence[Measured], lease: Lease) -> None:
            super().update(measured, lease)
            self.best = min(median(one.latency_s) for one in measured)

    session = of(T)


class update_takes_a_second_measurement(Good):
    class T(Tuner):
        def update(self, measured: Sequence[Measured], lease: Lease) -> None:
            self.tried ^= {one.candidate for one in measured}

    session = of(T)


class candidates_are_no_pickles(Good):
    class T(Tuner):
        def select(self, count: int, lease: Lease) -> Sequence[Any]:
            return [pickle.dumps(one) for one in super().select(count, lease)]

    session = of(T)


class the_default_is_a_candidate(Good):
    class T(Tuner):
        def default(self) -> Any:
            return "default"

    session = of(T)


class what_is_promised_is_there(Good):
    class session(Session):
        ranks = True

        def first(self, task: TaskInfo, lease: Lease) -> Sequence[bytes]:
            return []


class hides_what_it_has(Good):
    class session(Session):
        def take_rankers(self, rankers: Mapping[str, bytes]) -> None:
            raise NotImplementedError


class opens_something_else(Good):
    def open(self, *words: Any) -> Any:
        return object()


class learn_takes_what_a_job_measured(Good):
    class session(Session):
        def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
            self.best = min(median(record.latency_s) for one in earlier for record in one.records)


class early_builds_are_compared(Good):
    """It reports that the build is published, and has written nothing."""

    class session(Session):
        def evaluate_early(self, lease: Lease) -> Any:
            found = super().evaluate_early(lease)
            (self.outdir / "toy.json").unlink()
            return found


class obeys_strangers(Good):
    class session(Session):
        def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
            known = {"toy": self.heard}
            for one in earlier:
                known[one.workloads[1]] += [record.candidate for record in one.records]


class learning_twice_gives_the_same(Good):
    class session(Session):
        def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
            self.heard = [b"%d" % next(LEFT)]


class learned_other_last_words(Good):
    """Two searches with the same measurements differ late, and only in the middle of a candidate."""

    class T(Tuner):
        def select(self, count: int, lease: Lease) -> Sequence[Any]:
            first, *others = super().select(count, lease)
            return [first, *(b"0" * 150 + b"%d" % next(LEFT) + one for one in others)]

    session = of(T)


class cannot_learn_nor_build(Good):
    class T(Tuner):
        def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
            raise ValueError("no compiler")

    session = type("Of", (Session,), {"tuner_type": T, "learns": False})


class kill_ends_a_stage(Good):
    class session(Session):
        def wait(self, lease: Lease) -> None:
            time.sleep(5.0 if lease.stage == "build" else 0.0)


class kill_ends_what_hangs(Good):
    class session(Session):
        def wait(self, lease: Lease) -> None:
            if getattr(self, "hangs", False):
                threading.Event().wait(60.0)
            super().wait(lease)

    def open(self, job: JobSpec, *rest: Any) -> Session:
        session = super().open(replace(job, options={}), *rest)
        session.hangs = "hang" in job.options  # type: ignore[attr-defined]
        return session


class kill_spares_other_leases(Good):
    class session(Session):
        def event(self, lease: Lease) -> threading.Event:
            return self.killed.setdefault(0, (lease, threading.Event()))[1]


class kill_of_nothing_is_harmless(Good):
    class session(Session):
        def kill(self, lease: Lease | None = None) -> None:
            if lease is not None:
                self.killed[id(lease)][1].set()


class a_session_goes_on_after_a_kill(Good):
    class session(Session):
        dead = False

        def wait(self, lease: Lease) -> None:
            if self.dead:
                raise StepFailed("the workers are gone")
            super().wait(lease)

        def kill(self, lease: Lease | None = None) -> None:
            super().kill(lease)
            self.dead = lease is not None and lease.stage == "build"


class tasks_work_side_by_side(Good):
    class T(Tuner):
        def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
            self.session.current = candidates  # type: ignore[attr-defined]
            builders = self.session.__dict__.setdefault("builders", set[threading.Thread]())
            builders.add(threading.current_thread())
            if threading.current_thread() is not threading.main_thread():
                while len(builders - {threading.main_thread()}) < 2:  # the other one has begun too
                    threading.Event().wait(0.001)
            return [self.made(one) for one in self.session.current]  # type: ignore[attr-defined]

        def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Any]:
            for one in built:
                assert one.artifact is None or one.candidate.decode() == one.artifact.name
                yield self.run(one) if one.candidate in self.mine() else Measured(one.candidate, (), Failure.RUN_ERROR)

        def mine(self) -> Sequence[bytes]:
            return [b"%d" % number for number in self.order[:4]] + [DEFAULT]

    session = of(T)


class memory_is_bounded(Good):
    kept: list[bytes] = []

    class T(Tuner):
        def update(self, measured: Sequence[Measured], lease: Lease) -> None:
            super().update(measured, lease)
            memory_is_bounded.kept.append(b"x" * 4 * 1024**2)

    session = of(T)


class it_says_little(Good):
    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            print("x" * 100_000)
            return super().made(candidate)

    session = of(T)


class it_writes_nowhere_else(Good):
    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            Path("candidate.txt").write_bytes(candidate)
            return super().made(candidate)

    session = of(T)


class it_leaves_no_process_behind(Good):
    class session(Session):
        def compile(self, records: Sequence[Record], lease: Lease) -> None:
            program = "import time; time.sleep(20)"
            subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
            super().compile(records, lease)


class it_begins_again_after_a_crash(Good):
    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            with (self.session.workdir / candidate.decode()).open("xb"):
                return Built(candidate, self.session.workdir / candidate.decode())

        def run(self, one: Built) -> Measured:
            if one.artifact is not None:
                one.artifact.unlink()
            return super().run(one)

    session = of(T)


class segfaults(Good):
    """A stage that ends its process."""

    class T(Tuner):
        def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
            os.kill(os.getpid(), 11)
            return []

    session = of(T)


class never_ends(Good):
    """A stage that cannot be ended."""

    class T(Tuner):
        def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
            threading.Event().wait()
            return []

    session = of(T)


class tells_its_number(never_ends):
    """The same, with a process that reports its number."""

    def open(self, job: JobSpec, model: Path, *rest: Any) -> Session:
        model.with_name("number").write_text(f"{os.getpid()}\n")
        return super().open(job, model, *rest)


class chatters(Good):
    """Prints wherever it can, and reads its standard input."""

    class T(Tuner):
        def made(self, candidate: bytes) -> Built:
            print("hello", sys.stdin.read())
            os.write(1, b"\x00\xff garbage\n")
            os.write(2, b"more\n")
            return super().made(candidate)

    session = of(T)
