"""Decides what each task of a job does next. Pure: no I/O, no clock.

Files: job_plan.py (state machine of a job: the next stage of each task), task_state.py (a task: its records, its
search, its round), allocation.py (chooses the task of the next round), rounds.py (reconstructs rounds from records),
known_schedules.py (tasks that need no search), early_builds.py (when to build the network during the search),
latency_goal.py (whether a network meets its goal), blocked_candidates.py (candidates that must not be run).
"""
