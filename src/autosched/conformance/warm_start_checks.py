"""Checks of a backend that warm-starts from earlier jobs. Other backends pass."""

from collections.abc import Sequence

from autosched.backend import Earlier, Tuner
from autosched.conformance.backend_harness import BackendHarness, Broken, Check, NotApplicable, parting
from autosched.model import Failure, Record

TEACHER = 7
"""Number of the earlier job."""


def _records(bench: BackendHarness) -> list[Record]:
    """Records of a first round, including a failure."""
    first, *others = bench.round.records()
    return [Record(task=1, number=0, candidate=first.candidate, failure=Failure.RUN_CRASH, detail="it died"), *others]


def _earlier(bench: BackendHarness, workload: str, records: Sequence[Record]) -> Earlier:
    return Earlier(TEACHER, bench.spec(), bench.model, {1: workload}, tuple(records))


def _taught(bench: BackendHarness, name: str, workload: str = "") -> Tuner:
    """The search of the first task in a session that was warm-started from a job of the same model."""
    session = bench.open(name)
    if not session.learns:
        raise NotApplicable("its sessions do not learn: jobs that ask for it are refused")
    lease, records = bench.lease("import"), _records(bench)
    task = session.import_network(lease).tasks[0]
    session.learn([_earlier(bench, workload or task.workload, records)], lease)
    return session.tuner(task, 0)


def learn_takes_what_a_job_measured(bench: BackendHarness) -> None:
    """After learn, the search goes on: it selects candidates, which build, and learns from its own.

    Measurements of learn are not this job's: their candidates still count as not tried. There may be failures, whose
    `latency_s` is empty, and workloads that this network does not have.
    """
    for name, workload in (("taught", ""), ("taught by a stranger", "a workload of another network")):
        tuner = _taught(bench, name, workload)
        found = bench.measure(tuner)
        if not found.candidates:
            raise Broken("a search that was taught selects nothing", tuner.select)
        bench.learn(tuner, found)
        if again := set(tuner.select(bench.subject.count, bench.lease("select"))) & set(found.candidates):
            raise Broken(f"{len(again)} candidates that were measured are selected again", tuner.update)


def learning_twice_gives_the_same(bench: BackendHarness) -> None:
    """Two sessions that learned the same select the same, even if a client died in between.

    The next client passes the same jobs again, and then the records. Nothing else may decide: no clock, no file of an
    earlier client, no `random` module without a seed.
    """
    seen: list[list[list[bytes]]] = []
    for name in ("learned", "learned again"):
        tuner = _taught(bench, name)
        at_first = list(tuner.select(bench.subject.count, bench.lease("select")))
        tuner.restore(_records(bench))
        seen.append([at_first, list(tuner.select(bench.subject.count, bench.lease("select")))])
    for when, one, other in zip(("at first", "after restore"), *seen, strict=True):
        if one != other:
            raise Broken(f"{when}, of what the two select, {parting(one, other)}", tuner.select)


CHECKS: tuple[Check, ...] = (learn_takes_what_a_job_measured, learning_twice_gives_the_same)
