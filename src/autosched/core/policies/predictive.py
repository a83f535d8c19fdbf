"""The policy `predictive`: a rule for each goal, and looking ahead while there are few jobs.

Before any rule come fairness and promises: who has waited too long, then priorities, then who would miss a deadline.
"""

import math
from dataclasses import dataclass

from autosched.core.policies import dispatching_rules, work_estimation
from autosched.core.policies.dispatching_rules import RuleInput
from autosched.core.policies.lookahead import Forecast, Score, Search, doubt
from autosched.core.state import Job, Key, State, Task
from autosched.model import Goal

JOBS_MAX = 16
"""With more active jobs looking ahead costs more than it brings,"""
JOBS_MAX_SURE = 32
SURE_DOUBT = 0.1
"""unless the estimates are hardly in doubt: then it pays for so many."""
CROWD_MAX = 2_000
"""Maximum jobs for which it is asked whether they are one batch."""
BATCH_SPREAD = 0.25
"""Jobs are one batch while they were submitted within this share of what is left to do."""
PATIENCE = 10.0
"""Maximum wait of a job for one step, in multiples of all the work of that job."""
PATIENCE_LEAST_S = 60.0
EXCESS = 10.0
HURRY = 1.5
"""A job is hurried when its deadline is nearer than its remaining work times this factor."""


def _weighted(makespan: float, completion: float, *, limit: float = math.inf) -> Score:
    """Both relative to the search's first rule, so that the weights mean the same for every load.

    A makespan above `limit` weighs more than anything else, so that only one as bad can be chosen instead.
    """

    def score(forecast: Forecast, reference: Forecast) -> float:
        makespan_ratio = forecast.makespan_s / (reference.makespan_s or 1.0)
        completion_ratio = forecast.completion_s / (reference.completion_s or 1.0)
        excess = max(0.0, makespan_ratio - limit)
        return makespan * makespan_ratio + completion * completion_ratio + EXCESS * excess

    return score


@dataclass(frozen=True)
class Aim:
    """The rules and the search of a goal."""

    rule: str
    """The rule that is followed before the first look ahead, and for a batch of more than JOBS_MAX jobs."""
    stream: str
    """Followed while jobs keep coming: then there is no last one to wait for."""
    search: Search
    wary: Search | None = None
    """Instead of it once forecasts have proved wrong: then what was promised of the makespan comes first."""


_CRITICAL = ("critical-0.1", "critical-0.3", "critical-0.8")
_MIXED = ("stretched", "stretched-late", *_CRITICAL, "shortest")
_LONGEST = ("longest", "longest-critical", "longest-fed")
AIMS = {
    Goal.MAKESPAN: Aim(
        rule="longest",
        stream="build-first",
        search=Search((*_LONGEST, "build-first", "shortest", *_CRITICAL[:2]), _weighted(1.0, 1e-6), margin=0.1),
    ),
    Goal.BALANCED: Aim(
        rule="stretched",
        stream="shortest",
        search=Search((*_MIXED, "longest", "build-first"), _weighted(1.0, 1.0, limit=0.97), moves=20),
        wary=Search(("longest", *_MIXED, "build-first"), _weighted(1.0, 0.3, limit=0.98)),
    ),
    Goal.LATENCY: Aim(
        rule="shortest",
        stream="shortest",
        search=Search(("shortest", *_CRITICAL), _weighted(1e-6, 1.0), margin=0.02),
    ),
}


def plan(state: State) -> Search | None:
    """How to look ahead now: not for many jobs, nor while new ones keep coming, which no look ahead can see."""
    count = len(state.active)
    if not 1 < count <= CROWD_MAX or state.estimates.are_wrong():
        return None
    first, last = state.jobs[next(iter(state.active))], state.jobs[next(reversed(state.active))]
    aim = AIMS[state.goal]
    if last.submitted_at - first.submitted_at > BATCH_SPREAD * state.totals.bottleneck_s():
        return Search((aim.stream,), aim.search.score)
    few = count <= JOBS_MAX or (count <= JOBS_MAX_SURE and doubt(state) < SURE_DOUBT)
    how = (state.estimates.doubted and aim.wary) or aim.search
    return how if few else Search((aim.rule,), how.score)


def foreseen_key(state: State, task: Task) -> Key:
    """Fairness and promises first, then the rule that holds now. O(1)."""
    job = state.jobs[task.job]
    rule = (
        dispatching_rules.BUILD_FIRST
        if state.estimates.are_wrong()
        else dispatching_rules.named(state.rule or AIMS[state.goal].rule)
    )
    ahead = job.outlook
    home, home_s = work_estimation.build_pools(state, job), 0.0
    for pool in home:
        home_s += state.totals.pools.get(pool, 0.0)
    left_s = ahead.bold_s if rule.bold else ahead.left_s
    sight = RuleInput(
        dispatching_rules.rank(task.at),
        left_s,
        left_s / max(1, job.waiting + len(job.steps)),
        task.ready_at,
        task.job,
        state.totals.bottleneck_s() if rule.watches else 0.0,
        bool(home) and task.queued_in != home,
        home_s,
    )
    waited_out = state.now - task.ready_at > max(PATIENCE_LEAST_S, PATIENCE * (job.done_s + ahead.left_s))
    if waited_out:
        return (0, task.ready_at, task.job, task.index)
    return (1, -job.spec.priority, not _in_a_hurry(state, job), *rule.key(sight), task.ready_at, task.index)


def _in_a_hurry(state: State, job: Job) -> bool:
    if job.spec.deadline_s is None:
        return False
    return job.submitted_at + job.spec.deadline_s - state.now < HURRY * job.outlook.left_s
