"""Policies: the scheduling order.

Files: policy.py (the interface, and the policies that order a queue), predictive.py (the policy that looks ahead), and
its parts: work_estimation.py (remaining work of jobs), dispatching_rules.py (sort keys of waiting tasks), lookahead.py
(simulation of a rule).
"""
