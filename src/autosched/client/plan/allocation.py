"""Chooses the task of the next round: the one whose tuning is expected to shorten the network most.

Source: Ansor (Zheng et al., OSDI 2020), section 6, with the constants and the simplified gradient of MetaSchedule's
gradient-based task scheduler: alpha 0.2, window 3. Ansor also groups similar tasks, and expects a slow one to become
half as fast as the fastest. That gained 0.3 % of the latency in simulations on recorded searches, and is left out.

Several tasks can be alternatives for the same calls of the network (`TaskInfo.groups`). Only the fastest of them is
used, so a round gains only the seconds by which it beats the best alternative.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

ALPHA = 0.2
WINDOW = 3
STRIKES_MAX = 3
"""Maximum rounds without a valid measurement, or failed steps, in a row; then the task gets no more rounds."""

ROUNDS_MIN = 2
"""Minimum rounds before a task counts as outdone: first rounds may be of a single trial."""
PEAK_RATIO = 1.5
"""Maximum expected speed of a task, in arithmetic operations per second, relative to the best task so far."""
LIGHT_SHARE = 0.005
"""Share of the untuned latency below which a task is light: even without the task, the network's latency would not
measurably differ."""
LIGHT_TRIALS = 1
"""Trials of a light task's first round, in which its latency without a search is measured."""


@dataclass
class TaskRounds:
    """The rounds of one task and their gains."""

    task: int
    weight: int
    flops: float
    best_s: list[float | None] = field(default_factory=list)
    """Best latency of one call after each round, in seconds; None while nothing valid was measured."""
    strikes: int = 0
    exhausted: bool = False
    groups: Mapping[str, int] = field(default_factory=dict)
    """Calls for which the task competes with others, by group."""
    untuned_s: float | None = None
    """Latency of one call without a search, in seconds, as measured in a build of the network; None if unknown."""

    @property
    def open(self) -> bool:
        """Whether the task may get another round."""
        return not self.exhausted and self.strikes < STRIKES_MAX

    @property
    def tuned(self) -> bool:
        """Whether it has a valid measurement."""
        return bool(self.best_s) and self.best_s[-1] is not None

    @property
    def latency_s(self) -> float | None:
        """Known latency of one call, in seconds: of the search, otherwise without a search."""
        return self.best_s[-1] if self.tuned else self.untuned_s

    def gain_s(self, leading_s: Mapping[str, float]) -> float:
        """Expected saving in network latency per round, in seconds. `leading_s`: best latency in each group."""
        rounds = len(self.best_s)
        now = self.best_s[-1] if self.best_s else None
        if now is None:
            return 0.0
        before = self.best_s[rounds - 1 - WINDOW] if rounds > WINDOW else None
        backward = (before - now) / WINDOW if before is not None else 0.0
        saved = ALPHA * backward + (1 - ALPHA) * now / rounds
        behind = {group: now - leading_s.get(group, now) for group in self.groups}
        contested = sum(calls * max(0.0, saved - behind[group]) for group, calls in self.groups.items())
        return (self.weight - sum(self.groups.values())) * saved + contested


def leading(shares: Iterable[TaskRounds]) -> dict[str, float]:
    """The best latency of one call in each group of competing tasks, in seconds."""
    found: dict[str, float] = {}
    for share in shares:
        if share.best_s and (now := share.best_s[-1]) is not None:
            found.update({group: min(now, found.get(group, now)) for group in share.groups})
    return found


def outdone(shares: Iterable[TaskRounds]) -> list[TaskRounds]:
    """Open searches that cannot win any call any more."""
    shares = list(shares)
    leading_s = leading(shares)
    fastest = max(
        (share.flops / share.best_s[-1] for share in shares if share.best_s and share.best_s[-1]), default=0.0
    )
    found = []
    for share in shares:
        if not share.open:
            continue
        known = share.tuned and len(share.best_s) >= ROUNDS_MIN and share.gain_s(leading_s) == 0.0
        if known or _hopeless(share, leading_s, PEAK_RATIO * fastest):
            found.append(share)
    return found


def _hopeless(share: TaskRounds, leading_s: Mapping[str, float], peak: float) -> bool:
    """Whether a task cannot win any call: rivals compete for all of its calls, and are faster than the task would be at
    the speed `peak`. They may need less arithmetic for the same result."""
    if not share.groups or sum(share.groups.values()) < share.weight or not peak:
        return False
    return all(group in leading_s and share.flops / peak > leading_s[group] for group in share.groups)


def untuned_s(shares: Iterable[TaskRounds]) -> dict[int, float]:
    """Seconds of each task's calls in the network without a search; empty if no build was measured.

    A task that is not in the measured build is expected to be as fast, by its arithmetic, as those that are.
    """
    shares = list(shares)
    known = {share.task: share.weight * share.untuned_s for share in shares if share.untuned_s is not None}
    work = sum(share.weight * share.flops for share in shares if share.task in known)
    if not known or not work:
        return {}
    per_flop_s = sum(known.values()) / work
    return {share.task: known.get(share.task, share.weight * share.flops * per_flop_s) for share in shares}


def light(shares: Iterable[TaskRounds]) -> set[int]:
    """Tasks whose share of the network is too small for their tuning to be measurable in its latency."""
    shares = list(shares)
    expected_s = untuned_s(shares)
    whole_s = sum(expected_s[share.task] for share in shares if share.untuned_s is not None) if expected_s else 0.0
    return {task for task, seconds in expected_s.items() if seconds < LIGHT_SHARE * whole_s}


def next_share(
    shares: Iterable[TaskRounds], leading_s: Mapping[str, float], busy: Container[int] = frozenset()
) -> TaskRounds | None:
    """The share to serve next. First each task gets one round: those with the least arithmetic of their rivals first,
    then the heaviest (by seconds in the network if a build was measured, otherwise by arithmetic). Then the task with
    the largest gain. None if all are closed or `busy`."""
    shares = list(shares)
    candidates = [share for share in shares if share.open and share.task not in busy]
    if not candidates:
        return None
    fresh = [share for share in candidates if not share.best_s]
    if fresh:
        least: dict[str, float] = {}
        for share in shares:
            least.update({group: min(share.flops, least.get(group, share.flops)) for group in share.groups})
        leads = [share for share in fresh if all(share.flops <= least[group] for group in share.groups)]
        expected_s = untuned_s(shares)
        return max(
            leads or fresh, key=lambda share: (expected_s.get(share.task, share.weight * share.flops), -share.task)
        )
    unproven = [share for share in candidates if share.best_s[-1] is None]
    if unproven:
        return min(unproven, key=lambda share: (len(share.best_s), share.task))
    return max(candidates, key=lambda share: (share.gain_s(leading_s), -share.task))
