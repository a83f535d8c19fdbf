"""The policy `predictive`: a rule for each goal, and looking ahead while there are few jobs.

Before any rule come fairness and promises: who has waited out of all proportion, then the higher priority, then who
would miss a deadline.
"""

from dataclasses import dataclass

from autosched.core import rules
from autosched.core.lookahead import Forecast, Score, Search
from autosched.core.rules import Key, Sight
from autosched.core.state import Job, State, Task
from autosched.model import Goal

JOBS_MAX = 16
"""With more active jobs looking ahead costs more than it brings; the goal's own rule decides."""
PATIENCE = 10.0
"""Nobody waits for one step longer than so many times all the work of his job, whatever the others are."""
PATIENCE_LEAST_S = 60.0
HURRY = 1.5
"""A job is hurried when its deadline is nearer than so many times what it has still to do."""


def _weighted(makespan: float, completion: float) -> Score:
    """Both relative to first come, first served, so that the weights mean the same for every load."""

    def score(forecast: Forecast, reference: Forecast) -> float:
        return (
            makespan * forecast.makespan_s / (reference.makespan_s or 1.0)
            + completion * forecast.completion_s / (reference.completion_s or 1.0)
        )  # fmt: skip

    return score


@dataclass(frozen=True)
class Aim:
    """What a goal comes to."""

    rule: str
    """Followed without looking ahead."""
    search: Search


_CRITICAL = ("critical-0.5", "critical-0.1", "critical-0.3", "critical-0.8")
_LONGEST = ("longest", "longest-critical", "longest-fed")
AIMS = {
    Goal.MAKESPAN: Aim(
        rule="longest",
        search=Search(
            rules=(*_LONGEST, "build-first", "shortest", "critical-0.1", "critical-0.3"),
            score=_weighted(1.0, 1e-6),
            margin=0.1,
            moves=10,
            moves_first=40,
        ),
    ),
    Goal.BALANCED: Aim(
        rule="shortest",
        search=Search(
            rules=(*_CRITICAL, "shortest", "longest", "build-first"),
            score=_weighted(1.0, 0.6),
            margin=0.0,
            moves=20,
            moves_first=40,
        ),
    ),
    Goal.LATENCY: Aim(
        rule="shortest",
        search=Search(
            rules=("shortest", *_CRITICAL), score=_weighted(1e-6, 1.0), margin=0.02, moves=10, moves_first=40
        ),
    ),
}


def plan(state: State) -> Search | None:
    """How to look ahead now."""
    return AIMS[state.goal].search if 1 < len(state.active) <= JOBS_MAX else None


def foreseen_key(state: State, task: Task) -> Key:
    """Fairness and promises first, then the rule that holds now. O(1)."""
    job = state.jobs[task.job]
    rule = rules.named(state.rule or AIMS[state.goal].rule)
    outlook = job.outlook
    home = job.places.get("build")
    left_s = outlook.bold_s if rule.bold else outlook.left_s
    sight = Sight(
        rules.RANKS.get(task.at, rules.RANK_OTHER),
        left_s,
        left_s / max(1, job.waiting + len(job.steps)),
        task.ready_at,
        task.job,
        state.bottleneck_s,
        home is not None and task.queued_in != home,
        sum(state.totals.pools.get(pool, 0.0) for pool in home) if home is not None else 0.0,
    )
    waited_out = state.now - task.ready_at > max(PATIENCE_LEAST_S, PATIENCE * (job.done_s + outlook.left_s))
    if waited_out:
        return (0, task.ready_at, task.job, task.index)
    return (1, -job.spec.priority, not _in_a_hurry(state, job), *rule.key(sight), task.ready_at, task.index)


def _in_a_hurry(state: State, job: Job) -> bool:
    if job.spec.deadline_s is None:
        return False
    return job.submitted_at + job.spec.deadline_s - state.now < HURRY * job.outlook.left_s
