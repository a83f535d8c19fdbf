"""Drives a backend as a client does, but believes nothing: what checks look at."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from autosched.backend import Backend, Built, Lease, Measured, Network, Session, Tuner, available
from autosched.model import JobSpec, Record, TaskInfo

Option = bool | int | float | str
LEASE_S = 300.0
NOTHING = type("nothing", (), {"__repr__": lambda _: "none at all"})()
SHOWN = 100
"""Characters of what is too long to be told: around the place that matters."""


class Subject(Struct, frozen=True, kw_only=True):
    """The backend under test and its test data. `BackendContract` has the same names, and explains them."""

    entry: str
    """MODULE:NAME of what the entry point names."""
    model: str
    """A file."""
    options: dict[str, Option] = {}
    target: str = "auto"
    hanging: dict[str, dict[str, Option]] = {}
    count: int = 4
    rounds: int = 20
    growth_bytes: int = 64 * 1024**2
    kill_s: float = 1.0


class Broken(Exception):
    """A check failed: what was seen, and the method of the backend that is to be looked at."""

    def __init__(self, seen: str, at: object = None) -> None:
        super().__init__(seen)
        self.at = at


class NotApplicable(Exception):
    """There is nothing to check here, and why."""


@dataclass
class Round:
    """Results of the stages of a round."""

    candidates: list[bytes]
    built: list[Built] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)

    def records(self, first: int = 0) -> list[Record]:
        """Return them as the daemon would keep them; a nonsense latency is a failure."""
        return [
            Record(task=1, trial=trial, candidate=one.candidate, latency_s=tuple(one.latency_s), failure=one.failure)
            for trial, one in enumerate(self.measured, first)
        ]


class BackendHarness:
    """One backend in a folder of its own."""

    def __init__(self, subject: Subject, folder: Path, alone: bool = False) -> None:
        self.subject, self.folder = subject, folder
        self.alone = alone
        """Whether this process, its HOME and its current folder are there for the checks only."""
        self._cores = sorted(os.sched_getaffinity(0))
        folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def backend(self) -> Backend:
        """The backend that the entry point names."""
        module, _, name = self.subject.entry.partition(":")
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        made: Backend = found()
        return made

    def lease(self, stage: str) -> Lease:
        """A fresh one: the last core is the device."""
        device = stage in ("profile", "evaluate")
        unit, core = ("cpu0", self._cores[-1]) if device else ("host/0", self._cores[0])
        return Lease(stage=stage, units=(unit,), cores=(core,), timeout_s=LEASE_S)

    def workdir(self, name: str) -> Path:
        """Where the session of this name works."""
        return self.folder / "jobs" / name

    def open(
        self, name: str, options: Mapping[str, Option] | None = None, model: Path | None = None, seed: int = 0
    ) -> Session:
        """A session, in a folder of its own that stays what it was when the name was used before."""
        outdir = self.workdir(name) / "out"
        outdir.mkdir(parents=True, exist_ok=True)
        return self.backend.open(self.spec(options, seed), model or self.model, self.workdir(name), outdir, 1)

    @property
    def model(self) -> Path:
        """The model that is tuned."""
        return Path(self.subject.model)

    def spec(self, options: Mapping[str, Option] | None = None, seed: int = 0) -> JobSpec:
        """A job of the backend, under the name by which it is installed, if it is."""
        name = next((name for name, entry in available().items() if entry.value == self.subject.entry), "checked")
        given = {**self.subject.options, **(options or {})}
        return JobSpec(name="net", model="0" * 64, backend=name, options=given, target=self.subject.target, seed=seed)

    @cached_property
    def session(self) -> Session:
        """A session with its network, shared by the checks that do no harm to it."""
        return self.open("shared")

    @cached_property
    def network(self) -> Network:
        """The imported network."""
        return self.session.import_network(self.lease("import"))

    @property
    def task(self) -> TaskInfo:
        """The first task."""
        if not self.network.tasks:
            raise Broken("import_network found no task in the model", type(self.session).import_network)
        return self.network.tasks[0]

    def imported(self, name: str, options: Mapping[str, Option] | None = None, seed: int = 0) -> tuple[Session, Tuner]:
        """A session of its own, and the tuner of its first task."""
        session = self.open(name, options, seed=seed)
        network = session.import_network(self.lease("import"))
        return session, session.tuner(network.tasks[0], seed)

    def tuner(self, seed: int = 0) -> Tuner:
        """A fresh search of the first task."""
        task = self.task  # imports the network, if that was not done
        return self.session.tuner(task, seed)

    def measure(self, tuner: Tuner, count: int | None = None) -> Round:
        """Select, build and profile; learns nothing."""
        count = self.subject.count if count is None else count
        found = Round(list(tuner.select(count, self.lease("select"))))
        found.built = list(tuner.build(found.candidates, self.lease("build")))
        found.measured = list(tuner.profile(found.built, self.lease("profile")))
        return found

    def learn(self, tuner: Tuner, found: Round) -> None:
        """Update."""
        tuner.update(found.measured, self.lease("update"))

    @cached_property
    def round(self) -> Round:
        """The first round of a fresh search, for checks of what stages answer."""
        return self.measure(self.tuner())

    @cached_property
    def finished(self) -> tuple[Session, Any]:
        """A session whose small job has come to its end, and its evaluation; it worked in `workdir("finished")`."""
        session, tuner = self.imported("finished")
        return session, self.whole(session, tuner)

    def measured_alone(self, tuner: Tuner, candidates: Sequence[bytes]) -> list[bytes]:
        """Those of the candidates that build and run, sorted."""
        built = tuner.build(candidates, self.lease("build"))
        return sorted(one.candidate for one in tuner.profile(built, self.lease("profile")) if one.failure is None)

    def whole(self, session: Session, tuner: Tuner, rounds: int = 1) -> Any:
        """A small job to its end; returns the evaluation."""
        records: list[Record] = []
        for _ in range(rounds):
            found = self.measure(tuner)
            self.learn(tuner, found)
            records += found.records(len(records))
        session.compile(records, self.lease("compile"))
        return session.evaluate(self.lease("evaluate"))


def well_formed(value: Struct, at: object) -> None:
    """Raise Broken unless every field is what its type says, so that it can cross the wire."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise Broken(f"this {type(value).__name__} does not survive MessagePack: {error}", at) from None


def answers_each(kind: str, answered: Sequence[bytes], wanted: Sequence[bytes], at: object) -> None:
    """Raise Broken unless the answers are those to the candidates."""
    if list(answered) != list(wanted):
        raise Broken(
            f"{kind} was given {len(wanted)} candidates and answered for {_few(answered)}, not {_few(wanted)}", at
        )


def parting(one: Sequence[object], other: Sequence[object]) -> str:
    """The first place where two answers that should be equal differ, in words."""
    pairs = enumerate(zip_longest(one, other, fillvalue=NOTHING), 1)
    number, (mine, yours) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    texts = [repr(value) for value in (mine, yours)]
    equal = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    begin = max(0, equal - SHOWN // 2)
    cut = [f"{'...' if begin else ''}{text[begin : begin + SHOWN]}" for text in texts]
    return f"number {number} is {cut[0]} and {cut[1]}"


def _few(candidates: Sequence[bytes]) -> str:
    return f"[{', '.join(repr(one[:20]) for one in candidates[:4])}{', ...' if len(candidates) > 4 else ''}]"


Check = Callable[[BackendHarness], None]
