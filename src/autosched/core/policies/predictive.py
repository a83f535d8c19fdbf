"""The policy `predictive`: a dispatching rule for each goal, and a lookahead search while there are few jobs.

Fairness and deadlines come before any rule: tasks that have waited too long, then priorities, then jobs that would miss
their deadline.
"""

import math
from dataclasses import dataclass

from autosched.core.lifecycles import Key
from autosched.core.policies import dispatching_rules, work_estimation
from autosched.core.policies.dispatching_rules import RuleInput
from autosched.core.policies.lookahead import Forecast, Score, Search, doubt
from autosched.core.state import Job, State, Task
from autosched.model import Goal

JOBS_MAX = 16
"""Maximum number of active jobs for a lookahead search. With more, it costs more than it gains."""
JOBS_MAX_SURE, SURE_DOUBT = 32, 0.1
"""The same maximum where the doubt about the estimates is below `SURE_DOUBT`."""
CROWD_MAX = 2_000
"""Maximum number of active jobs for which a rule is chosen by their submission times."""
BATCH_SPREAD = 0.25
"""Jobs are one batch if they were submitted within this share of the busiest pool's remaining seconds."""
PATIENCE = 10.0
"""Maximum wait of a task, in multiples of all the work of its job."""
PATIENCE_LEAST_S = 60.0
EXCESS = 10.0
HURRY = 1.5
"""A job is late when its deadline is nearer than its remaining work times this factor."""


def _weighted(makespan: float, completion: float, *, limit: float = math.inf) -> Score:
    """A weighted sum of makespan and completion time, both relative to the search's first rule.

    A makespan above `limit` outweighs everything else.
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
    """The rule before the first search, and for a batch of more than JOBS_MAX jobs."""
    stream: str
    """The rule while new jobs keep coming, so that there is no last job."""
    search: Search
    cautious: Search | None = None
    """The search to use after estimates were wrong. It gives the makespan more weight."""


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
        cautious=Search(("longest", *_MIXED, "build-first"), _weighted(1.0, 0.3, limit=0.98)),
    ),
    Goal.LATENCY: Aim(
        rule="shortest",
        stream="shortest",
        search=Search(("shortest", *_CRITICAL), _weighted(1e-6, 1.0), margin=0.02),
    ),
}


def plan(state: State) -> Search | None:
    """The lookahead search to run now. None for many jobs, and while new ones keep coming, which no search foresees."""
    count = len(state.active)
    if not 1 < count <= CROWD_MAX or state.estimates.are_wrong():
        return None
    first, last = state.jobs[next(iter(state.active))], state.jobs[next(reversed(state.active))]
    aim = AIMS[state.goal]
    if last.submitted_at - first.submitted_at > BATCH_SPREAD * state.totals.bottleneck_s():
        return Search((aim.stream,), aim.search.score)
    few = count <= JOBS_MAX or (count <= JOBS_MAX_SURE and doubt(state) < SURE_DOUBT)
    how = (state.estimates.doubted and aim.cautious) or aim.search
    return how if few else Search((aim.rule,), how.score)


def foreseen_key(state: State, task: Task) -> Key:
    """The sort key of a task: fairness and deadlines first, then the current rule. O(1)."""
    job = state.jobs[task.job]
    rule = (
        dispatching_rules.BUILD_FIRST
        if state.estimates.are_wrong()
        else dispatching_rules.named(state.rule or AIMS[state.goal].rule)
    )
    remaining = job.remaining
    home, home_s = work_estimation.build_pools(state, job), 0.0
    for pool in home:
        home_s += state.totals.pools.get(pool, 0.0)
    left_s = remaining.pessimistic_s if rule.pessimistic else remaining.left_s
    rule_input = RuleInput(
        dispatching_rules.rank(state, task.stage),
        left_s,
        left_s / max(1, job.waiting + len(job.steps)),
        task.ready_at,
        task.job,
        state.totals.bottleneck_s() if rule.watches else 0.0,
        bool(home) and task.queued_in != home,
        home_s,
    )
    waited_out = state.now - task.ready_at > max(PATIENCE_LEAST_S, PATIENCE * (job.done_s + remaining.left_s))
    if waited_out:
        return (0, task.ready_at, task.job, task.index)
    return (1, -job.spec.priority, not _in_a_hurry(state, job), *rule.key(rule_input), task.ready_at, task.index)


def _in_a_hurry(state: State, job: Job) -> bool:
    if job.spec.deadline_s is None:
        return False
    return job.submitted_at + job.spec.deadline_s - state.now < HURRY * job.remaining.left_s
