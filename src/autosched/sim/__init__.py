"""Virtual time: the production scheduler, driven by simulated clients.

A world is one heap of things to come, one seed, no clock. Whatever is simultaneous happens in the order in which the
jobs were registered. A simulated client speaks load-awareness as a real one does, and it resumes from its finished
rounds as a real one does from its records.

Files: scenario.py (what there is to do, and what goes wrong), simulator.py (runs it), simulated_client.py,
fault_model.py (faulty candidates and devices), estimate_quality.py (what the scheduler is told of the future),
simulation_result.py. On these: workload_scenarios.py (workloads as scenarios), policy_benchmark.py (instances under
policies), what_if.py, thesis_workload.py (the load that the thesis measured), random_testing.py (random scenarios with
many faults), parallel.py (a process for each core).

Two things are modelled more simply than they are: steps that share a unit (policy `synchronous`) share it fairly and
at no cost, and messages take no time. Both flatter: reality is a little worse.

Safety is judged here on the world's own account of which step really runs where, not on the scheduler's.
"""
