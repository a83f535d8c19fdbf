"""Rules for measurements. Pure: no I/O.

Files: identity.py (what a measurement may be compared with), record_selection.py (which records are valid, best, final,
or measured again), task_best.py (the best record of each task, kept record by record), winner.py (the schedule
that a network is compiled with), failure_attribution.py (whether
the candidate or the device caused a failure), network_estimate.py (latency of the network from its tasks'),
statistics.py (medians and intervals).
"""
