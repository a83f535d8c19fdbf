"""The rounds of a task, told from its records: how large each was, and whether the last one was cut off.

A search decides once a round, from all rounds before it. So a client that takes over goes on in the middle of a round
as if nothing had happened: it selects from what was known when the round began, and measures what is not measured yet.
"""

from collections.abc import Sequence

from msgspec import Struct

from autosched.backend import Network
from autosched.model import Purpose, Record, TaskIndex
from autosched.records import record_selection


class PastRounds(Struct, frozen=True):
    """Work of earlier clients on one task: one record of each candidate, round by round."""

    whole: tuple[tuple[Record, ...], ...] = ()
    half: tuple[Record, ...] = ()
    """Records of a round that was cut off."""
    missing: int = 0
    """Number of trials that the round lacks."""


def first_count(trials: int, tasks: int) -> int:
    """Maximum trials of the first round of each task: half of the budget is kept for later rounds."""
    return max(1, trials // (2 * tasks))


def searched(network: Network) -> int:
    """Number of tasks that need a search, at least 1."""
    return max(1, len(network.tasks) - len(network.recalled.taken))


def budget(network: Network, trials: int | None) -> int:
    """Trials of the whole job: as many as its user wants, else what the backend thinks right, but for those that
    earlier jobs have made."""
    whole = network.default_trials if trials is None else trials
    return max(0, whole - network.recalled.trials)


def spent(own: Sequence[Record], trials: int) -> int:
    """Number of trials that were made."""
    return min(sum(record.purpose is Purpose.TRIAL for record in own), trials)


def pasts(
    network: Network, trials: int | None, records: Sequence[Record], borrowed: int = 0
) -> dict[TaskIndex, PastRounds]:
    """Past work on each task; the first `borrowed` records are those of another job, as are those that are known."""
    whole = budget(network, trials)
    left, first = whole - spent(records[borrowed:], whole), first_count(whole, searched(network))
    known = [record for record in records[borrowed:] if record.purpose is Purpose.KNOWN]
    made = [record for record in records[borrowed:] if record.purpose is not Purpose.KNOWN]
    found = {}
    for info in network.tasks:
        theirs, own = ([r for r in some if r.task == info.task] for some in ([*records[:borrowed], *known], made))
        found[info.task] = past(theirs, own, network.batch, first, left)
    return found


def past(borrowed: Sequence[Record], own: Sequence[Record], batch: int, first: int, left: int) -> PastRounds:
    """A task's records as rounds. `left`: trials that the job may still make.

    A round that was short for another reason, because the space was exhausted or a step failed, is taken for one that
    was cut off: the client that goes on with it finds that nothing is missing, or something else.
    """
    before = len(record_selection.tried(borrowed))
    tried = record_selection.tried([*borrowed, *own])
    ends = [*range(batch, before, batch), before] if before else []
    ends += range(before + (batch if before else min(batch, first)), len(tried), batch)
    cuts = [0, *ends]
    found = [tuple(tried[begin:end]) for begin, end in zip(cuts, [*ends, len(tried)], strict=True) if begin < end]
    if not found or len(tried) == before:
        return PastRounds(tuple(found))
    size = batch if before or len(found) > 1 else min(batch, first)
    missing = min(size - len(found[-1]), left)
    if missing <= 0:
        return PastRounds(tuple(found))
    return PastRounds(tuple(found[:-1]), found[-1], missing)
