"""Reconstructs the rounds of a task from its records: their sizes, and whether the last one was interrupted.

A search decides once a round, from all earlier rounds. A client that resumes a job therefore continues an interrupted
round: it selects with the records from before the round, and measures the candidates that have no record.
"""

from collections.abc import Sequence

from msgspec import Struct

from autosched.backend import Network
from autosched.model import Purpose, Record, TaskIndex
from autosched.network_status import Recalled
from autosched.records import record_selection


class PastRounds(Struct, frozen=True):
    """Work of earlier clients on one task: one record of each candidate, round by round."""

    whole: tuple[tuple[Record, ...], ...] = ()
    half: tuple[Record, ...] = ()
    """Records of an interrupted round."""
    missing: int = 0
    """Number of trials that the round lacks."""


def first_count(trials: int, tasks: int) -> int:
    """Maximum trials of the first round of each task: half of the budget is kept for later rounds."""
    return max(1, trials // (2 * tasks))


def searched(network: Network, recalled: Recalled) -> int:
    """Number of tasks that need a search, at least 1."""
    return max(1, len(network.tasks) - len(recalled.taken))


def budget(network: Network, trials: int | None, recalled: Recalled) -> int:
    """Trials of the whole job: the user's number, otherwise the backend's default, less those that earlier jobs have
    made."""
    whole = network.default_trials if trials is None else trials
    return max(0, whole - recalled.trials)


def spent(own: Sequence[Record], trials: int) -> int:
    """Number of trials that were made."""
    return min(sum(record.purpose is Purpose.TRIAL for record in own), trials)


def pasts(
    network: Network, trials: int | None, recalled: Recalled, records: Sequence[Record], borrowed: int = 0
) -> dict[TaskIndex, PastRounds]:
    """Past work on each task; the first `borrowed` records are those of another job, as are known ones."""
    whole = budget(network, trials, recalled)
    left, first = whole - spent(records[borrowed:], whole), first_count(whole, searched(network, recalled))
    known = [record for record in records[borrowed:] if record.purpose is Purpose.KNOWN]
    made = [record for record in records[borrowed:] if record.purpose is not Purpose.KNOWN]
    found = {}
    for info in network.tasks:
        theirs, own = ([r for r in some if r.task == info.task] for some in ([*records[:borrowed], *known], made))
        found[info.task] = past(theirs, own, network.batch, first, left)
    return found


def past(borrowed: Sequence[Record], own: Sequence[Record], batch: int, first: int, left: int) -> PastRounds:
    """A task's records as rounds. `left`: trials that the job may still make.

    A round that was short for another reason, an exhausted space or a failed step, counts as interrupted: the client
    that continues it finds that nothing, or something else, is missing.
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
