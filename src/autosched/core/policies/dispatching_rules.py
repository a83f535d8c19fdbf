"""The dispatching rules of `predictive`: sort keys over a few numbers, the smallest first.

The same keys order the real queues and those of the simulations that look ahead. All but the first put builds first,
since a build feeds the device. Sources: most work remaining is the upward rank of HEFT (Topcuoglu et al., IEEE TPDS
2002) on chains; shortest remaining work is Smith's rule (1956); giving way to the critical path is Kelley and
Walker's (1959).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from autosched.core.lifecycles import Key
from autosched.core.state import State
from autosched.stages import StageRole

RANKS = {StageRole.FEEDS: 0, StageRole.OPENS: 1}
"""Rank by the role of a stage: what feeds a device first, then what leads to it; all others are `RANK_OTHER`."""
RANK_OTHER = 2
ORDER = "order"
AGEING = 0.1
"""Weight of the waiting time. Without it, the slowest job would end later than in the order of arrival."""


class RuleInput(Struct):
    """Facts about a waiting task, the input of a rule. Mutable, so that a simulation needs only one object."""

    rank: int
    left_s: float
    """Remaining work of its job, in seconds."""
    path_s: float
    """`left_s` divided by the number of its tasks that run side by side."""
    ready_at: float
    job: int
    bottleneck_s: float
    """Remaining work of the busiest pool, in seconds per unit."""
    on_device: bool
    """Whether the task waits for another pool than the one in which its job builds."""
    build_pool_s: float
    """Remaining work of the pool in which its job builds, in seconds."""


class Rule(Struct, frozen=True):
    """A named order."""

    name: str
    key: Callable[[RuleInput], Key]
    watches: bool = False
    """Whether the rule reads `bottleneck_s`, which takes time to compute."""
    pessimistic: bool = False
    """Whether the rule uses pessimistic estimates (`RemainingWork.pessimistic_s`)."""


def _first_come(it: RuleInput) -> Key:
    return (it.ready_at, it.job)


def _build_first(it: RuleInput) -> Key:
    return (it.rank, it.ready_at, it.job)


def _shortest(it: RuleInput) -> Key:
    """Shortest remaining work first. Waiting counts: a tenth of the seconds that a task has waited is subtracted."""
    return (it.rank, it.left_s + AGEING * it.ready_at, it.job)


def _longest(share: float) -> Callable[[RuleInput], Key]:
    """Most work remaining; on the device also for the hosts that have most to do, which it must not let run dry."""

    def key(it: RuleInput) -> Key:
        return (it.rank, -(it.left_s + share * it.build_pool_s) if it.on_device else -it.left_s, it.job)

    return key


def _critical(slack: float) -> Callable[[RuleInput], Key]:
    """Shortest first, but jobs whose own path is about as long as the bottleneck's work go before all others."""

    def key(it: RuleInput) -> Key:
        if it.path_s * (1.0 + slack) >= it.bottleneck_s:
            return (it.rank, 0, -it.path_s, it.job)
        return (it.rank, 1, it.left_s, it.job)

    return key


def _stretched(weight: float, slack: float) -> Callable[[RuleInput], Key]:
    """Shortest first, but a job rises by as much as its own path threatens to outlast the bottleneck's work."""

    def key(it: RuleInput) -> Key:
        threat_s = max(0.0, it.path_s * (1.0 + slack) - it.bottleneck_s)
        return (it.rank, it.left_s - weight * threat_s + AGEING * it.ready_at, it.job)

    return key


def _critical_longest(it: RuleInput) -> Key:
    """Most work remaining, and a job whose path is the bottleneck goes even before builds."""
    if it.path_s * 1.05 >= it.bottleneck_s:
        return (0, -it.path_s, it.rank, it.job)
    return (1, it.rank, -(it.left_s + 0.3 * it.build_pool_s) if it.on_device else -it.left_s, it.job)


FIRST_COME = Rule("first-come", _first_come)
BUILD_FIRST = Rule("build-first", _build_first)

RULES = {
    rule.name: rule
    for rule in (
        FIRST_COME,
        BUILD_FIRST,
        Rule("longest", _longest(0.1), pessimistic=True),
        Rule("longest-fed", _longest(0.3)),
        Rule("longest-critical", _critical_longest, watches=True),
        Rule("shortest", _shortest),
        Rule("stretched", _stretched(1.0, 1.0), watches=True),
        Rule("stretched-late", _stretched(2.0, 0.0), watches=True),
        *(Rule(f"critical-{slack}", _critical(slack), watches=True) for slack in (0.1, 0.3, 0.5, 0.8)),
    )
}


def rank(state: State, stage: str) -> int:
    """How far a stage stands behind those that feed a device; 0 goes first."""
    return RANKS.get(state.role_of(stage), RANK_OTHER)


def order(jobs: Sequence[int], *, builds_first: bool) -> str:
    """The name of the rule that serves jobs in a fixed order."""
    return " ".join((ORDER, "builds-first" if builds_first else "jobs-first", *map(str, jobs)))


def ordered(name: str) -> tuple[list[int], bool] | None:
    """The jobs of a fixed order and whether builds go first; None when the name is none of `order`."""
    if not name.startswith(f"{ORDER} "):
        return None
    _, first, *jobs = name.split(" ")
    return [int(job) for job in jobs], first == "builds-first"


@lru_cache(maxsize=512)
def named(name: str) -> Rule:
    """The rule of that name. KeyError when there is none."""
    if (fixed := ordered(name)) is None:
        return RULES[name]
    place = {job: number for number, job in enumerate(fixed[0])}
    last = len(place)
    if fixed[1]:
        return Rule(name, lambda it: (it.rank, place.get(it.job, last), it.job))
    return Rule(name, lambda it: (place.get(it.job, last), it.rank, it.job))
