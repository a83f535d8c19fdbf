"""Collects the tasks of many networks, in several sizes, and tunes the most useful ones in advance.

Files: collector.py (imports networks, each in a separate process), usefulness.py (pure: which task is worth trials),
filler.py (tunes the most useful tasks for some time, or while the daemon is idle), model_training.py (trains the models
that order schedules, on a host lane).
"""
