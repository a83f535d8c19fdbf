"""Schedules by rule: for every kernel that no search has found a schedule for.

A kernel is read as stages (`stage`), which are joined where that saves time (`inline`), cut into boxes without
conditions (`boxes`), and written down again as loop nests with vectors (`elementwise`, `reduction`).
"""

from autosched.tvm.rules.kernel import scheduled
from autosched.tvm.rules.passes import SCHEDULE, TUNED, by_rule, schedule_of, with_rules, with_views

__all__ = ["SCHEDULE", "TUNED", "by_rule", "schedule_of", "scheduled", "with_rules", "with_views"]
