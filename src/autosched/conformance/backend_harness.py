"""Drives a backend as a client does, without trusting it, and keeps the results for the checks."""

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
from autosched.client import backend_boundary
from autosched.model import JobSpec, Record, TaskInfo
from autosched.stages import stage_of

Option = bool | int | float | str
LEASE_S = 300.0
NOTHING = type("nothing", (), {"__repr__": lambda _: "none at all"})()
SHOWN = 100
"""Maximum characters of a value in a message, around the relevant position."""


class Subject(Struct, frozen=True, kw_only=True):
    """The backend under test and its test data; the fields are explained in `BackendContract`."""

    entry: str
    """MODULE:NAME of the entry point."""
    model: str
    """Path of the model."""
    options: dict[str, Option] = {}
    target: str = "auto"
    hanging: dict[str, dict[str, Option]] = {}
    count: int = 4
    rounds: int = 20
    growth_bytes: int = 64 * 1024**2
    kill_s: float = 1.0


class Broken(Exception):
    """A check failed: the observation, and the method of the backend to look at."""

    def __init__(self, seen: str, at: object = None) -> None:
        super().__init__(seen)
        self.at = at


class NotApplicable(Exception):
    """The check does not apply, with the reason."""


@dataclass
class Round:
    """Results of the stages of a round."""

    candidates: list[bytes]
    built: list[Built] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)

    def records(self, first: int = 0) -> list[Record]:
        """Return the results as the daemon would keep them; an invalid latency is a failure."""
        return [
            Record(task=1, number=number, candidate=one.candidate, latency_s=tuple(one.latency_s), failure=one.failure)
            for number, one in enumerate(self.measured, first)
        ]


class BackendHarness:
    """Runs one backend in a separate folder."""

    def __init__(self, subject: Subject, folder: Path, alone: bool = False) -> None:
        self.subject, self.folder = subject, folder
        self.alone = alone
        """Whether this process, its HOME and its current folder exist for the checks only."""
        self._cores = sorted(os.sched_getaffinity(0))
        folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def backend(self) -> Backend:
        """The backend of the entry point."""
        module, _, name = self.subject.entry.partition(":")
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        made: Backend = found()
        return made

    def lease(self, stage: str) -> Lease:
        """A new lease; the last core is the device."""
        device = stage_of(stage).on_device
        unit, core = ("cpu0", self._cores[-1]) if device else ("host/0", self._cores[0])
        return Lease(stage=stage, units=(unit,), cores=(core,), timeout_s=LEASE_S)

    def workdir(self, name: str) -> Path:
        """Work folder of the session with a name."""
        return self.folder / "jobs" / name

    def open(
        self, name: str, options: Mapping[str, Option] | None = None, model: Path | None = None, seed: int = 0
    ) -> Session:
        """Open a session in its own folder, which keeps its content when the name is used again. Raises
        RequestError."""
        spec = self.spec(options, seed)
        return backend_boundary.opened(self.backend, spec, model or self.model, self.workdir(name), 1)

    @property
    def model(self) -> Path:
        """The model to tune."""
        return Path(self.subject.model)

    def spec(self, options: Mapping[str, Option] | None = None, seed: int = 0) -> JobSpec:
        """A job of the backend, under its installed name if it is installed."""
        name = next((name for name, entry in available().items() if entry.value == self.subject.entry), "checked")
        given = {**self.subject.options, **(options or {})}
        return JobSpec(name="net", model="0" * 64, backend=name, options=given, target=self.subject.target, seed=seed)

    @cached_property
    def session(self) -> Session:
        """A session with its network, shared by checks that do not change it."""
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
        """A new session, and the tuner of its first task."""
        session = self.open(name, options, seed=seed)
        network = session.import_network(self.lease("import"))
        return session, session.tuner(network.tasks[0], seed)

    def tuner(self, seed: int = 0) -> Tuner:
        """A new search of the first task."""
        task = self.task  # imports the network first if necessary
        return self.session.tuner(task, seed)

    def measure(self, tuner: Tuner, count: int | None = None) -> Round:
        """Select, build and profile, without update."""
        count = self.subject.count if count is None else count
        found = Round(list(tuner.select(count, self.lease("select"))))
        found.built = list(tuner.build(found.candidates, self.lease("build")))
        found.measured = list(tuner.profile(found.built, self.lease("profile")))
        return found

    def learn(self, tuner: Tuner, found: Round) -> None:
        """Update the tuner with a round."""
        tuner.update(found.measured, self.lease("update"))

    @cached_property
    def round(self) -> Round:
        """The first round of a new search, for checks of the stages' answers."""
        return self.measure(self.tuner())

    @cached_property
    def finished(self) -> tuple[Session, Any]:
        """A session whose small job has ended, and its evaluation; its folder is `workdir("finished")`."""
        session, tuner = self.imported("finished")
        return session, self.whole(session, tuner)

    def measured_alone(self, tuner: Tuner, candidates: Sequence[bytes]) -> list[bytes]:
        """The candidates that build and run, sorted."""
        built = tuner.build(candidates, self.lease("build"))
        return sorted(one.candidate for one in tuner.profile(built, self.lease("profile")) if one.failure is None)

    def whole(self, session: Session, tuner: Tuner, rounds: int = 1) -> Any:
        """Run a small job to its end; returns the evaluation."""
        records: list[Record] = []
        for _ in range(rounds):
            found = self.measure(tuner)
            self.learn(tuner, found)
            records += found.records(len(records))
        session.compile(records, self.lease("compile"))
        return session.evaluate(self.lease("evaluate"))


def well_formed(value: Struct, at: object) -> None:
    """Raise Broken unless every field matches its type, so that the value can be sent over the wire."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise Broken(f"this {type(value).__name__} does not survive MessagePack: {error}", at) from None


def answers_each(kind: str, answered: Sequence[bytes], wanted: Sequence[bytes], at: object) -> None:
    """Raise Broken unless there is one answer for each candidate."""
    if list(answered) != list(wanted):
        raise Broken(
            f"{kind} was given {len(wanted)} candidates and answered for {_few(answered)}, not {_few(wanted)}", at
        )


def parting(one: Sequence[object], other: Sequence[object]) -> str:
    """The first difference between two answers that should be equal, in words."""
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
