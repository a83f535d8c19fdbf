"""Chooses the schedules that a job takes over from the record store after importing its network. Pure.

A task needs no search if its best schedule was measured in the environment of the job, in as many trials as the job
would spend on it. Trials of earlier jobs count as trials of this one: a job that asks for more trials than were made
continues the search. Other known schedules are the first candidates of their task's search: they are measured on this
device before they count.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from autosched.backend import Network
from autosched.client.plan.rounds import budget
from autosched.model import Purpose, Record, TaskIndex
from autosched.network_status import NOTHING_RECALLED, Recalled
from autosched.protocol import KnownSchedule, KnownSchedules
from autosched.records.record_selection import FINALISTS_MAX
from autosched.records.task_best import short_digest

ASKED = 16
"""Maximum schedules of each kind requested for each task."""
HINTS_MAX = 4
"""Maximum schedules that a search measures first."""
ENOUGH = 0.9
"""Minimum share of a budget that must have been spent; trials of steps that failed as a whole leave no records."""


class Recall(Struct, frozen=True):
    """Known schedules that a job takes over."""

    recalled: Recalled
    records: tuple[Record, ...]
    """Records of Purpose.KNOWN."""
    hints: dict[TaskIndex, tuple[bytes, ...]]
    """First candidates of each task."""


def recall(
    network: Network,
    trials: int | None,
    known: Mapping[TaskIndex, KnownSchedules],
    first_number: int = 0,
    *,
    goes_on: bool = False,
) -> Recall:
    """Choose the known schedules that a job takes over, and the tasks that need no search.

    `trials`: number that the job's user asked for. `first_number`: number of the first record. `goes_on`: the search
    continues from the known schedules in any case, because the user asked for a latency.
    """
    whole = budget(network, trials, NOTHING_RECALLED)
    winners = {task: [one for one in found.own if one.compared] for task, found in known.items()}
    proven = {task for task, found in winners.items() if found}
    share = whole * len(proven) / max(1, len(network.tasks))
    tried = sum(known[task].tried - 1 for task in proven)  # the default is among them, and cost no trial
    taken = proven if tried >= ENOUGH * share and not goes_on else set()
    records: list[Record] = []
    for task, found in sorted(known.items()):
        kept = winners[task][:FINALISTS_MAX] if task in taken else found.own
        for one in kept:
            records.append(_record(task, first_number + len(records), one))
    hints = {
        task: tuple(one.candidate for one in found.hints[:HINTS_MAX])
        for task, found in known.items()
        if found.hints and task not in taken
    }
    sources = {task: told for task, found in known.items() if (told := _sources(found, task in taken))}
    spared = 0 if goes_on else round(share) if taken else min(whole, tried)
    return Recall(Recalled(tuple(sorted(taken)), min(whole, spared), sources), tuple(records), hints)


def unmeasured_competitors(network: Network, measured: Collection[TaskIndex]) -> list[TaskIndex]:
    """Tasks that compete with a measured one for calls of the network, and are not measured themselves."""
    contested = {group for info in network.tasks if info.task in measured for group in info.groups}
    return [info.task for info in network.tasks if info.task not in measured and contested & info.groups.keys()]


def first_hints(hints: Sequence[bytes], done: Sequence[Record]) -> list[bytes]:
    """Hints without a measurement."""
    measured = {record.candidate for record in done}
    return [candidate for candidate in hints if candidate not in measured]


def _record(task: TaskIndex, number: int, one: KnownSchedule) -> Record:
    return Record(
        task=task, number=number, candidate=one.candidate, latency_s=one.latency_s, detail=one.source,
        purpose=Purpose.KNOWN, code=one.code, measured_at=one.measured_at,
    )  # fmt: skip


def _sources(found: KnownSchedules, taken: bool) -> dict[str, str]:
    hints = () if taken else found.hints[:HINTS_MAX]
    return {short_digest(one.candidate).hex(): one.source for one in (*found.own, *hints)}
