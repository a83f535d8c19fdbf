"""The logging backend: one step in its log for each step that the client was told to run."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from autosched.backend import Built, Lease, Measured, Network
from autosched.client.plan.task_state import Round
from autosched.client.stage_runner import StageRunner
from autosched.model import JobSpec, Purpose, Record, TaskInfo
from bare_backend import BareSession, BareTuner
from chaos.checker import repetitions
from chaos.evidence import Evidence, LoggedStep, lines, lives
from chaos.witness import Log, WitnessSession

BATCH = 4


class Whimsical(BareTuner):
    """A tuner that never selects the same candidates twice."""

    selected = 0

    def restore(self, records: Sequence[Record]) -> None:
        pass

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        Whimsical.selected += count
        return [b"%d" % (Whimsical.selected + n) for n in range(count)]

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        pass

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        return [Built(candidate) for candidate in candidates]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        yield from (Measured(one.candidate, (1.0,)) for one in built)


class Networks(BareSession):
    """A network of one task."""

    def import_network(self, lease: Lease) -> Network:
        return Network(tasks=(TaskInfo(task=1, name="op", workload="w"),), batch=BATCH)

    def tuner(self, task: TaskInfo, seed: int) -> Whimsical:
        return Whimsical()


def lease(stage: str) -> Lease:
    return Lease(stage, ("host/0",), (), 60.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "net1.log"


def taking_over(log: Path) -> StageRunner:
    """Returns the worker of a client that replaces one which died during a round, after its import."""
    half = [Record(task=1, number=0, candidate=b"0", latency_s=(1.0,))]
    session = WitnessSession(Networks(), Log(log, log.parent))
    worker = StageRunner(session, JobSpec(name="net", model="0" * 64, trials=64), lambda record: None)
    worker.import_network(lease("import"), half)
    return worker


def steps(log: Path) -> list[LoggedStep]:
    return [step for life in lives("net1", lines(log)) for step in life.steps]


def repeated(log: Path) -> list[str]:
    return list(repetitions(Evidence({"net1": lives("net1", lines(log))})))


def test_a_select_that_completes_the_round_of_a_dead_client_is_one_step(log: Path) -> None:
    worker, before = taking_over(log), Whimsical.selected
    worker.select(1, Round(Purpose.TRIAL, "select", trials=BATCH - 1), lease("select"))
    assert Whimsical.selected == before + BATCH + BATCH - 1, "it was asked twice, and told what was measured in between"
    assert [(step.stage, step.ok) for step in steps(log)] == [("import", True), ("select", True)]
    assert not repeated(log)


def test_a_repeated_step_is_another_step(log: Path) -> None:
    worker = taking_over(log)
    for _ in range(2):
        worker.select(1, Round(Purpose.TRIAL, "select", trials=BATCH - 1), lease("select"))
    assert len(steps(log)) == 3
    assert repeated(log)


def test_a_client_that_dies_between_two_calls_has_not_ended_its_step(log: Path) -> None:
    worker = taking_over(log)
    worker.select(1, Round(Purpose.TRIAL, "select", trials=BATCH - 1), lease("select"))
    written = log.read_text().splitlines(keepends=True)
    log.write_text("".join(written[:-1]))
    assert [(step.stage, step.ok) for step in steps(log)] == [("import", True), ("select", False)]
