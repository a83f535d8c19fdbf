"""Divides a task's budget among several methods, round by round.

The next round goes to the method with the lowest expected latency after it. The expected gain of a round is the forward
term of Ansor's gradient (Zheng et al., OSDI 2020, section 6.2): after n rounds, a task improves by a share 1/n in the
next. A method without a round on the task is tried once, except one that has lost on other tasks of the job: it is
expected to lose here as well, until the others' gains have become small.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from autosched.backend import NoteGroup
from autosched_tvm.api import Search, SearchContext, SearchMethod, Unsupported

FORWARD = 0.8
"""Weight of the forward term, as in Ansor."""
TASKS_MIN = 3
"""Minimum number of tasks on which a method must have been compared before that counts for the next one."""
BY = "by"


@dataclass
class Arm:
    """One method's search for one task."""

    name: str
    search: Search
    trials: int = 0
    """Number of measured trials."""
    best_s: float = math.inf
    exhausted: bool = False


class Portfolio:
    """The searches of one job."""

    def __init__(self, methods: Mapping[str, SearchMethod], batch: int) -> None:
        self._methods, self._batch = methods, batch
        self._lock = threading.Lock()
        self._behind: dict[str, dict[str, float]] = {name: {} for name in methods}
        self._winners: dict[str, str] = {}

    @property
    def notes(self) -> Sequence[str | NoteGroup]:
        """For each method, the number of tasks of which it found the best schedule."""
        with self._lock:
            won = Counter(self._winners.values())
        best = ", ".join(f"{name} {count}" for name, count in won.most_common())
        said = (f"best schedules found by: {best}",) if won else ()
        return (*said, *(note for method in self._methods.values() for note in method.notes))

    def search(self, site: SearchContext) -> "PortfolioSearch":
        """Begin the search for a task with every method that supports it. Raises Unsupported."""
        arms, reasons = [], []
        for name, method in self._methods.items():
            try:
                arms.append(Arm(name, method.search(site)))
            except Unsupported as error:
                reasons.append(f"{name}: {error}")
        if not arms:
            raise Unsupported("; ".join(reasons) or "no backend takes part")
        return PortfolioSearch(self, site.info.name, arms, self._batch, site.tuned)

    def learn(self, task: str, best_s: Mapping[str, float], tuned: bool = True) -> None:
        """Learn the methods' best latencies on a task, of this job or (not `tuned`) of an earlier one."""
        least = min(best_s.values())
        with self._lock:
            if tuned:
                self._winners[task] = min(best_s, key=lambda name: best_s[name])
            for name, s in best_s.items():
                self._behind[name][task] = math.log(s / least)

    def behind(self, name: str, task: str) -> float:
        """Ratio of the method's best latency to the best of all, on other tasks; 0 while too few are known."""
        with self._lock:
            known = [log for other, log in self._behind[name].items() if other != task]
        return math.exp(fmean(known)) if len(known) >= TASKS_MIN else 0.0


@dataclass
class PortfolioSearch:
    """The search of one task."""

    shared: Portfolio
    task: str
    arms: list[Arm]
    batch: int
    tuned: bool = True
    selected: dict[bytes, bytes] = field(default_factory=dict)
    """Selected candidates, in the form of their own search."""

    def select(self, count: int) -> list[bytes]:
        """Select with the method of the largest expected gain, or with the next one if it has nothing left."""
        while open_arms := [arm for arm in self.arms if not arm.exhausted]:
            arm = min(open_arms, key=lambda one: (self._expected_s(one), one.trials))
            if chosen := arm.search.select(count):
                signed = [sign(candidate, arm.name) for candidate in chosen]
                self.selected.update(zip(signed, chosen, strict=True))
                return signed
            arm.exhausted = True
        return []

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Update each method with its own candidates, and all methods with unsigned ones."""
        for arm in self.arms:
            own = []
            for candidate, latency_s in measured:
                if (by := signer(candidate)) not in (arm.name, ""):
                    continue
                under_way = self.selected.pop(candidate, None) if by else None
                own.append((unsign(candidate) if under_way is None else under_way, latency_s))
                if by:
                    arm.trials += 1
                    arm.best_s = min([arm.best_s, *([median(latency_s)] if latency_s else [])])
            if own:
                arm.search.update(own)
        if reached := {arm.name: arm.best_s for arm in self.arms if arm.best_s < math.inf}:
            self.shared.learn(self.task, reached, self.tuned)

    def _expected_s(self, arm: Arm) -> float:
        """Expected best latency of the method after another round."""
        least = min(other.best_s for other in self.arms)
        if not arm.trials:
            behind = self.shared.behind(arm.name, self.task)
            return behind * least if behind > 1.0 and least < math.inf else 0.0
        return arm.best_s * max(0.0, 1.0 - FORWARD * self.batch / arm.trials)


def sign(candidate: bytes, name: str) -> bytes:
    """A candidate with the name of the backend that found it, in its memo."""
    trace = json.loads(candidate)
    remembered = trace[2] if len(trace) > 2 else {}
    return json.dumps([*trace[:2], {**remembered, BY: name}], separators=(",", ":")).encode()


def signer(candidate: bytes) -> str:
    """The method that found a candidate; empty for an unsigned one."""
    try:
        trace = json.loads(candidate)
        return str(trace[2].get(BY, "")) if len(trace) > 2 else ""
    except (ValueError, TypeError, AttributeError):
        return ""


def unsign(candidate: bytes) -> bytes:
    """A candidate in the form of its own search."""
    if not signer(candidate):
        return candidate
    *trace, remembered = json.loads(candidate)
    del remembered[BY]
    return json.dumps([*trace, remembered] if remembered else trace, separators=(",", ":")).encode()
