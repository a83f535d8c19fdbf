"""Facts about jobs that the daemon keeps beside the core.

Files: submissions.py (how a model becomes a job), progress.py (trials and best latencies), latency_curves.py (the
estimate over time), stage_history.py (times of earlier stages, told to the core), similar_jobs.py (which
earlier jobs teach a new one).
"""
