"""Policies: who goes next.

Files: policy.py (the interface, and the policies that order a queue), predictive.py (the one that looks ahead), and
for it work_estimation.py (what a job has still to do), dispatching_rules.py (sort keys of waiting tasks), lookahead.py
(what would happen).
"""
