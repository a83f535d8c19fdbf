"""State of jobs beside the core.

Files: submissions.py (checks and accepts jobs), progress.py (trials and best latencies), latency_curves.py (expected
latency over time), stage_history.py (durations of earlier stages, for the core's estimates), similar_jobs.py (chooses
the earlier jobs from which a search is warm-started).
"""
