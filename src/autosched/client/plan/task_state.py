"""One task of the network: its records, the progress of its search, and its round. Pure.

Most rounds are rounds of the search: select -> build -> profile -> update. Two other kinds select nothing and cost no
trials. Disturbed candidates, and those that failed once, are measured again (build -> profile -> update), after a
failure on another device of the kind, if there is one. When no more trials are to come, the best candidates of the task
are compared in its finals (build -> profile).
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
from autosched.stages import BUILD, PROFILE, SELECT, UPDATE

ROUND_STAGES = {
    Purpose.TRIAL: (SELECT, BUILD, PROFILE, UPDATE),
    Purpose.AGAIN: (BUILD, PROFILE, UPDATE),
    Purpose.FINAL: (BUILD, PROFILE),
}
"""The stages of a round, by its purpose. A round of the network (Purpose.NETWORK) has one stage."""
FINALS_MAX = 2
"""Maximum finals of a task: disturbed or failed ones are repeated once."""


@dataclass
class Round:
    """A running round. Its step writes candidates and results, in a thread; the client's loop does the rest."""

    purpose: Purpose
    stage: str
    """The running stage, or the next one."""
    steps: int = 0
    """Number of steps of the stage that run."""
    shared: bool = False
    """Whether several steps have shared the work of the stage."""
    trials: int = 0
    """Trials of the budget that the round takes."""
    avoid: UnitName = ""
    """The device that must not measure the round; empty if there is none."""
    candidates: Sequence[bytes] = ()
    """Candidates to build and measure."""
    default_last: bool = False
    """Whether the last candidate is the task's default, with which finals are compared."""
    built: Sequence[Built] = ()
    measured: list[Measured] = field(default_factory=list)
    """Results, beginning with those of an earlier client of the job that had begun the round."""
    earlier: int = 0
    """Number of results of an earlier client."""

    @property
    def stage_after(self) -> str:
        """The next stage of the round; empty if there is none."""
        stages = ROUND_STAGES.get(self.purpose, ())
        return stages[stages.index(self.stage) + 1] if self.stage in stages[:-1] else ""

    @property
    def kind(self) -> str:
        """Kind of the round's step for estimates of its duration: finals build less and measure longer than trials."""
        return f"{self.purpose.value} {self.stage}" if self.purpose in (Purpose.AGAIN, Purpose.FINAL) else self.stage

    @property
    def is_search(self) -> bool:
        """Whether it is a round of the search."""
        return self.purpose is Purpose.TRIAL

    @property
    def results(self) -> int:
        """Number of its own results, without those of an earlier client."""
        return len(self.measured) - self.earlier


@dataclass
class TaskState:
    """Records and search of a task, and its round."""

    search: TaskRounds
    records: list[Record] = field(default_factory=list)
    """The task's records, those of another job first."""
    round: Round | None = None
    """The running round."""
    half: PastRounds | None = None
    """The round that an earlier client left unfinished, and those before."""
    shaky: bool = False
    """Whether it may have disturbed records that are to be measured again."""
    doubts: dict[bytes, UnitName] = field(default_factory=dict)
    """Candidates whose failure may be the device's fault, with the device; empty if more is known of them."""
    attempts: Counter[bytes] = field(default_factory=Counter)
    """Number of re-measurements of each candidate."""
    finals: int | None = None
    """Number of finals held; None if it can have none."""
    rivals: Sequence[bytes] = ()
    """Schedules measured elsewhere, which take part in the finals of a job without trials."""

    @property
    def task(self) -> TaskIndex:
        """Number of the task in the network."""
        return self.search.task

    # What happened ------------------------------------------------------------------------------------------

    def recorded(self, record: Record) -> None:
        """Add a record of this job."""
        self.records.append(record)
        self.shaky |= bool(record.disturbed)
        candidate = record.candidate
        if record.purpose is Purpose.NETWORK or candidate in self.doubts:
            self.doubts[candidate] = ""
        elif record.failure in DOUBTFUL and record.purpose not in record_selection.FINALS:
            self.doubts[candidate] = record.unit
        if record.purpose is Purpose.AGAIN and (self.round is None or self.round.purpose is not Purpose.AGAIN):
            self.attempts[candidate] += 1  # by an earlier client

    def tagged(self, index: int, reason: str) -> Record | None:
        """Tag a record as disturbed. Returns it with the reason; None if it was tagged before."""
        record = self.records[index]
        if record.disturbed:
            return None
        self.records[index] = tagged = structs.replace(record, disturbed=reason)
        self.shaky = True
        return tagged

    def begin(self, purpose: Purpose, candidates: Sequence[bytes], avoid: UnitName = "") -> None:
        """Begin a round without a select stage."""
        if purpose is Purpose.AGAIN:
            self.attempts.update(candidates)
        if purpose is Purpose.FINAL and self.finals is not None:
            self.finals += 1
        self.round = Round(purpose, ROUND_STAGES[purpose][0], candidates=tuple(candidates), avoid=avoid)

    def learned(self, best_s: float | None) -> None:
        """End the measurements of the round. `best_s`: its best latency in seconds; None if nothing was valid."""
        assert self.round is not None
        search, best = self.search, self._best_with([best_s])
        if not self.round.is_search:
            search.best_s[-1:] = [best]
            return
        search.best_s.append(best)
        search.strikes = 0 if best_s is not None else search.strikes + 1
        self.half = None

    def count_round(self, records: Iterable[Record]) -> None:
        """Count records of an earlier client as a round."""
        self.search.best_s.append(self._best_with(record.best_s for record in records))

    def _best_with(self, latencies_s: Iterable[float | None]) -> float | None:
        """The best latency so far, including the given ones, in seconds; None while nothing valid was measured."""
        return min((s for s in (*self.search.best_s[-1:], *latencies_s) if s is not None), default=None)

    def give_up_half(self) -> None:
        """Count the unfinished round of an earlier client as it is."""
        if self.half is not None:
            self.count_round(self.half.half)
            self.half = None

    # What could come next -----------------------------------------------------------------------------------

    @property
    def is_final(self) -> bool:
        """Whether its finals were held."""
        return record_selection.is_final(self.records)

    def suspects(self) -> list[bytes]:
        """Disturbed candidates to be measured again; empty after finals have compared the best ones."""
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
        """Whether there are schedules to compare: measured ones or, in a job without trials, those of other devices."""
        return self.search.tuned or bool(self.rivals)

    @property
    def wants_finals(self) -> bool:
        """Whether the task needs finals."""
        return self.finals is not None and self.finals < FINALS_MAX and self.may_be_best and not self.is_final

    def finalists(self) -> Sequence[bytes]:
        """The candidates of the finals."""
        known = record_selection.finalists(self.records)
        return [*known, *(rival for rival in self.rivals if rival not in known)][: record_selection.FINALISTS_MAX]
