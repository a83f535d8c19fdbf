"""Virtual time: the production scheduler, driven by simulated clients.

A world is one heap of things to come, one seed, no clock. Whatever is simultaneous happens in the order in which the
jobs were registered. A simulated client speaks load-awareness as a real one does, and it resumes from its finished
rounds as a real one does from its records.

Files: scenario.py (what there is to do, and what goes wrong), world.py (lets it happen), client.py, sickness.py (poison
and sick devices), estimates.py (what the scheduler is told of the future), report.py (the outcome). On these: loads.py
(workloads as scenarios), study.py (instances under policies), plan.py (what if), thesis.py (the load that the thesis
measured), faults.py (random worlds in which much goes wrong), parallel.py (a process for each core).

Two things are modelled more simply than they are: steps that share a unit (policy `synchronous`) share it fairly and
at no cost, and messages take no time. Both flatter: reality is a little worse.

Safety is judged here on the world's own account of which step really runs where, not on the scheduler's.
"""
