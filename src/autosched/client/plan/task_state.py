"""One task of the network: its records, how far its search has come, and the round that it is in. Pure.

Most rounds are rounds of the search: select -> build -> profile -> update. Two other kinds select nothing and cost no
trials. Disturbed candidates, and those that failed once, are measured again (build -> profile -> update), after a
failure on another device of the kind, if there is one. When no more trials are to come, the best candidates of the task
meet in its finals (build -> profile).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from autosched.backend import Built, Measured
from autosched.client.plan.allocation import TaskRounds
from autosched.client.plan.blocked_candidates import BlockedCandidates
from autosched.client.plan.rounds import PastRounds
from autosched.model import Purpose, Record, TaskIndex, UnitName
from autosched.records import record_selection
from autosched.records.failure_attribution import DOUBTFUL

STAGES = {
    Purpose.TRIAL: ("select", "build", "profile", "update"),
    Purpose.AGAIN: ("build", "profile", "update"),
    Purpose.FINAL: ("build", "profile"),
}
"""The stages of a round, by its purpose. A round of the network (Purpose.NETWORK) has one stage."""
FINALS_MAX = 2
"""Finals that were disturbed, or failed, are held once more."""


@dataclass
class Round:
    """A round under way. Its step fills in candidates and results, in a thread; the client's loop does the rest."""

    purpose: Purpose
    stage: str
    """The stage under way, or the next one."""
    steps: int = 0
    """Number of steps of the stage that run."""
    shared: bool = False
    """Whether several steps have shared the work of the stage."""
    trials: int = 0
    """Trials of the budget that it takes."""
    avoid: UnitName = ""
    """The device on which it is not to measure; empty: there is none."""
    candidates: Sequence[bytes] = ()
    """Candidates to build and measure."""
    default_last: bool = False
    """Whether the last candidate is the task's default, beside which finals are measured."""
    built: Sequence[Built] = ()
    measured: list[Measured] = field(default_factory=list)
    """Results: first those of an earlier client of the job, which had begun the round."""
    earlier: int = 0
    """Number of results of an earlier client."""

    @property
    def stage_after(self) -> str:
        """The stage that follows in the round; empty: none."""
        stages = STAGES.get(self.purpose, ())
        return stages[stages.index(self.stage) + 1] if self.stage in stages[:-1] else ""

    @property
    def kind(self) -> str:
        """The kind of its step as far as its length goes: a final builds less and measures longer than a trial."""
        return f"{self.purpose.value} {self.stage}" if self.purpose in (Purpose.AGAIN, Purpose.FINAL) else self.stage

    @property
    def is_search(self) -> bool:
        """Whether it is a round of the search."""
        return self.purpose is Purpose.TRIAL

    @property
    def results(self) -> int:
        """Number of its own results, those of an earlier client aside."""
        return len(self.measured) - self.earlier


@dataclass
class TaskState:
    """Records and search of a task, and the round that it is in."""

    search: TaskRounds
    records: list[Record] = field(default_factory=list)
    """Its records, those of another job first."""
    round: Round | None = None
    """The round under way."""
    half: PastRounds | None = None
    """The round that an earlier client left unfinished, with those before."""
    shaky: bool = False
    """Whether it may have disturbed records that are to be measured again."""
    doubts: dict[bytes, UnitName] = field(default_factory=dict)
    """Candidates that failed as they may on a sick device, and where; empty: more is known of them."""
    attempts: Counter[bytes] = field(default_factory=Counter)
    """How often each candidate was measured again."""
    finals: int | None = None
    """How many finals it had; None: it can have none."""
    rivals: Sequence[bytes] = ()
    """Schedules measured elsewhere, which meet the others in the finals of a job without trials."""

    @property
    def task(self) -> TaskIndex:
        """Its number in the network."""
        return self.search.task

    # What happened ------------------------------------------------------------------------------------------

    def recorded(self, record: Record) -> None:
        """The task has another record of this job."""
        self.records.append(record)
        self.shaky |= bool(record.disturbed)
        candidate = record.candidate
        if record.purpose is Purpose.NETWORK or candidate in self.doubts:
            self.doubts[candidate] = ""
        elif record.failure in DOUBTFUL and record.purpose not in record_selection.FINALS:
            self.doubts[candidate] = record.device
        if record.purpose is Purpose.AGAIN and (self.round is None or self.round.purpose is not Purpose.AGAIN):
            self.attempts[candidate] += 1  # by an earlier client

    def tagged(self, index: int, reason: str) -> Record | None:
        """Something disturbed a record. Returns it with the reason; None: it was known to be disturbed."""
        record = self.records[index]
        if record.disturbed:
            return None
        self.records[index] = tagged = structs.replace(record, disturbed=reason)
        self.shaky = True
        return tagged

    def begin(self, purpose: Purpose, candidates: Sequence[bytes], avoid: UnitName = "") -> None:
        """A round begins that selects nothing."""
        if purpose is Purpose.AGAIN:
            self.attempts.update(candidates)
        if purpose is Purpose.FINAL and self.finals is not None:
            self.finals += 1
        self.round = Round(purpose, STAGES[purpose][0], candidates=tuple(candidates), avoid=avoid)

    def learned(self, best_s: float | None) -> None:
        """The round under way is measured. `best_s`: the best latency in it, in seconds; None: nothing was valid."""
        assert self.round is not None
        search, best = self.search, self._best_with([best_s])
        if not self.round.is_search:
            search.best_s[-1:] = [best]
            return
        search.best_s.append(best)
        search.strikes = 0 if best_s is not None else search.strikes + 1
        self.half = None

    def count_round(self, records: Iterable[Record]) -> None:
        """An earlier client has measured these records in a round."""
        self.search.best_s.append(self._best_with(record.best_s for record in records))

    def _best_with(self, latencies_s: Iterable[float | None]) -> float | None:
        """The best latency so far, these included, in seconds; None while nothing valid was measured."""
        return min((s for s in (*self.search.best_s[-1:], *latencies_s) if s is not None), default=None)

    def give_up_half(self) -> None:
        """The round that an earlier client left unfinished is not finished: it counts as it is."""
        if self.half is not None:
            self.count_round(self.half.half)
            self.half = None

    # What could come next -----------------------------------------------------------------------------------

    @property
    def is_final(self) -> bool:
        """Whether its finals are held."""
        return record_selection.is_final(self.records)

    def suspects(self) -> list[bytes]:
        """Candidates to be measured again, since they were disturbed; none once finals have compared the best ones."""
        if self.is_final or self.finals == FINALS_MAX:
            return []
        found = record_selection.suspects(self.records)
        return [candidate for candidate in found if self.attempts[candidate] < record_selection.ATTEMPTS_MAX]

    def doubtful(self, blocked: BlockedCandidates) -> tuple[list[bytes], UnitName]:
        """Candidates that failed once, all on one device, and the device."""
        doubts = {} if not self.doubts or self.is_final else self.doubts
        wanted = [
            (candidate, device)
            for candidate, device in doubts.items()
            if device and self.attempts[candidate] < record_selection.ATTEMPTS_MAX
            and not blocked.reason(self.task, candidate)
        ]  # fmt: skip
        where = wanted[0][1] if wanted else ""
        return [candidate for candidate, device in wanted if device == where], where

    @property
    def may_be_best(self) -> bool:
        """Whether there are schedules to compare: measured ones or, where nothing may be tried, those of elsewhere."""
        return self.search.tuned or bool(self.rivals)

    @property
    def wants_finals(self) -> bool:
        """Whether finals are to be held, as far as the task is concerned."""
        return self.finals is not None and self.finals < FINALS_MAX and self.may_be_best and not self.is_final

    def finalists(self) -> Sequence[bytes]:
        """The candidates that meet in finals."""
        known = record_selection.finalists(self.records)
        return [*known, *(rival for rival in self.rivals if rival not in known)][: record_selection.FINALISTS_MAX]
