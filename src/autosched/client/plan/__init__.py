"""Decides what each task of a job does next. Pure: no I/O, no clock.

Files: job_plan.py (state machine of a job: the next stage of each task), task_state.py (a task: its records, its
search, its round), allocation.py (which task deserves the next round), rounds.py (rounds rebuilt from records),
known_schedules.py (which tasks need no search), early_builds.py (when the network is built before the search ends),
latency_goal.py (whether it is fast enough), blocked_candidates.py (candidates that must not be run).
"""
