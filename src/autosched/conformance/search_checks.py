"""Checks of the search: what it may depend on, and from what it must be able to continue."""

import pickletools
from collections.abc import Sequence

from autosched.backend import Built, Measured, Tuner
from autosched.conformance.backend_harness import BackendHarness, Broken, Check, parting
from autosched.model import Failure, Record

CANDIDATE_BYTES_MAX = 200_000
FOREIGN = b"\x00 a candidate of another backend"


def _select(bench: BackendHarness, tuner: Tuner, count: int | None = None) -> Sequence[bytes]:
    return tuner.select(bench.subject.count if count is None else count, bench.lease("select"))


def select_gives_bytes(bench: BackendHarness) -> None:
    """Candidates are bytes, at most 200,000 of them each, and there is at least one.

    Encode your choices, for example as JSON. Data that all candidates share should be in the work folder instead.
    """
    tuner = bench.tuner()
    found = _select(bench, tuner)
    if not found:
        raise Broken("a fresh search selects nothing", tuner.select)
    for one in found:
        if not isinstance(one, bytes):
            raise Broken(f"a candidate is a {type(one).__name__}", tuner.select)
        if len(one) > CANDIDATE_BYTES_MAX:
            raise Broken(f"a candidate has {len(one)} bytes", tuner.select)


def select_keeps_to_its_count(bench: BackendHarness) -> None:
    """select(count) gives at most `count` candidates: each costs a trial of the user's budget.

    Cut what you choose to the count. The last round of a job is often smaller than a batch.
    """
    for count in (1, bench.subject.count):
        tuner = bench.tuner()
        if len(found := _select(bench, tuner, count)) > count:
            raise Broken(f"select({count}) gave {len(found)} candidates", tuner.select)


def select_is_pure(bench: BackendHarness) -> None:
    """A second select without an update in between gives the same candidates: select changes nothing.

    A step may be lost and repeated. In select, draw from a new generator seeded with (seed, number of records), and
    store nothing: selected candidates are learned in update.
    """
    tuner = bench.tuner()
    if list(first := _select(bench, tuner)) != list(second := _select(bench, tuner)):
        raise Broken(f"of what the first and the second select gave, {parting(first, second)}", tuner.select)


def the_same_seed_selects_the_same(bench: BackendHarness) -> None:
    """Two searches with the same seed and the same measurements select the same.

    Only task, seed and measurements may decide: no clock, no `random` module without a seed, no order of a set.
    """
    one, other = (bench.imported(name, seed=5)[1] for name in ("seed", "seed again"))
    for _ in range(2):
        if list(mine := _select(bench, one)) != list(yours := _select(bench, other)):
            raise Broken(f"of what the two select, {parting(mine, yours)}", one.select)
        measured = [Measured(candidate, (1e-3 * (1 + index),)) for index, candidate in enumerate(mine)]
        for tuner in (one, other):
            tuner.update(measured, bench.lease("update"))


def select_never_repeats(bench: BackendHarness) -> None:
    """Measured candidates are not selected again, and no round has a candidate twice.

    Keep the candidates of update and restore in a set, and leave them out. If nothing is left, select nothing.
    """
    tuner, seen = bench.tuner(), set[bytes]()
    for _ in range(3):
        found = list(_select(bench, tuner))
        if len(set(found) - seen) < len(found):
            raise Broken("a candidate was selected twice", tuner.select)
        seen.update(found)
        tuner.update([Measured(candidate, (1e-3,)) for candidate in found], bench.lease("update"))


def _restored(bench: BackendHarness, records: Sequence[Record]) -> Tuner:
    tuner = bench.tuner()
    tuner.restore(records)
    return tuner


def _records(bench: BackendHarness) -> list[Record]:
    return [
        Record(task=1, number=number, candidate=candidate, latency_s=(1e-3 * (number + 1),))
        for number, candidate in enumerate(_select(bench, bench.tuner()))
    ]


def a_restored_search_goes_on(bench: BackendHarness) -> None:
    """After restore, select gives candidates that are not in the records.

    A client may be killed at any time; the next one starts from the records. restore must lead to the same state as
    update.
    """
    records = _records(bench)
    tuner = _restored(bench, records)
    found = list(_select(bench, tuner))
    if again := [one for one in found if one in {record.candidate for record in records}]:
        raise Broken(f"{len(again)} of {len(found)} candidates had been measured before", tuner.restore)


def restoring_twice_gives_the_same(bench: BackendHarness) -> None:
    """Two searches restored from the same records select the same.

    Rebuild all state of select from (seed, records): caches and models in files or modules are lost.
    """
    records = _records(bench)
    found = []
    for name in ("restored", "restored again"):
        tuner = bench.imported(name)[1]
        tuner.restore(records)
        found.append(list(_select(bench, tuner)))
    if found[0] != found[1]:
        raise Broken(f"of what the two select, {parting(*found)}", tuner.restore)


def restore_takes_any_record(bench: BackendHarness) -> None:
    """restore accepts failures, disturbed records, and candidates of other backends.

    A job may use the records of another one. Check `failure` first, and skip a candidate that you cannot decode.
    """
    failed, disturbed = (_records(bench) * 2)[:2]
    mixed = [
        Record(task=1, number=0, candidate=failed.candidate, failure=Failure.RUN_CRASH, detail="it died"),
        Record(task=1, number=1, candidate=disturbed.candidate, latency_s=(0.5, 0.1), disturbed="load"),
        Record(task=1, number=2, candidate=FOREIGN, latency_s=(0.2,)),
    ]
    _select(bench, _restored(bench, mixed))


def update_takes_failures(bench: BackendHarness) -> None:
    """A round in which every candidate failed can be learned from, and the search goes on.

    `latency_s` is empty then: no minimum, no division. The first round of a hard task is often like that.
    """
    tuner = bench.tuner()
    failed = [Measured(candidate, (), Failure.RUN_ERROR, "no") for candidate in _select(bench, tuner)]
    tuner.update(failed, bench.lease("update"))
    _select(bench, tuner)


def update_takes_a_second_measurement(bench: BackendHarness) -> None:
    """A disturbed candidate is measured, and learned from, a second time.

    Replace its first measurement; do not count it as a new candidate.
    """
    tuner = bench.tuner()
    found = list(_select(bench, tuner))
    for latency_s in (2e-3, 1e-3):
        tuner.update([Measured(candidate, (latency_s,)) for candidate in found], bench.lease("update"))
    if set(_select(bench, tuner)) & set(found):
        raise Broken("what was measured twice is selected once more", tuner.update)


def candidates_are_no_pickles(bench: BackendHarness) -> None:
    """No candidate is a pickle: users exchange records, and loading a pickle runs its code.

    Use JSON or MessagePack.
    """
    tuner = bench.tuner()
    for one in _select(bench, tuner):
        if isinstance(one, bytes) and one[:1] == b"\x80" and _is_pickle(one):
            raise Broken("a candidate is a pickle", tuner.select)


def _is_pickle(data: bytes) -> bool:
    try:
        return any(opcode.name == "STOP" for opcode, _, _ in pickletools.genops(data))
    except (ValueError, IndexError, UnicodeDecodeError):
        return False


def the_default_is_a_candidate(bench: BackendHarness) -> None:
    """default() is None, or bytes that build and run.

    It is the task without tuning; the best candidates are compared with it before one of them is used.
    """
    tuner = bench.tuner()
    default = tuner.default()
    if default is None:
        return
    if not isinstance(default, bytes):
        raise Broken(f"default() is a {type(default).__name__}", tuner.default)
    built = tuner.build([default], bench.lease("build"))
    measured = list(tuner.profile(built, bench.lease("profile")))
    if not all(isinstance(one, Built) for one in built) or not measured or measured[0].failure is not None:
        raise Broken(f"the default fails: {[one.detail for one in measured]}", tuner.default)


CHECKS: tuple[Check, ...] = (
    select_gives_bytes,
    select_keeps_to_its_count,
    select_is_pure,
    the_same_seed_selects_the_same,
    select_never_repeats,
    a_restored_search_goes_on,
    restoring_twice_gives_the_same,
    restore_takes_any_record,
    update_takes_failures,
    update_takes_a_second_measurement,
    candidates_are_no_pickles,
    the_default_is_a_candidate,
)
