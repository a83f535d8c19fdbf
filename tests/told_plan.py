"""A plan whose events return the load that the end of their step reports."""

from collections.abc import Callable
from typing import Any

from autosched.client.plan.job_plan import JobPlan
from autosched.model import NETWORK_TASK, JobLoad

OF_TASK = ("selected", "advanced", "updated", "failed", "lost")
OF_NETWORK = ("imported", "baseline", "compiled", "evaluated", "evaluated_early", "gave_up_early", "broken")


class ToldPlan(JobPlan):
    """As the client uses it: an event, then the report of what has changed."""


def _told(event: Callable[..., None], *, of_task: bool) -> Callable[..., JobLoad]:
    def tell(plan: JobPlan, *arguments: Any, **more: Any) -> JobLoad:
        event(plan, *arguments, **more)
        return plan.take_changes(arguments[0] if of_task else NETWORK_TASK)

    return tell


for _name in (*OF_TASK, *OF_NETWORK):
    setattr(ToldPlan, _name, _told(getattr(JobPlan, _name), of_task=_name in OF_TASK))
