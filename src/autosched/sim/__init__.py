"""Virtual time: the production scheduler, driven by simulated clients.

A world is one heap of events, one seed, no clock. Simultaneous events happen in the order of their registration. A
simulated client reports load-awareness as a real one does, and resumes from its finished rounds as a real one does from
its records.

Files: scenario.py (jobs and faults), simulator.py (runs a scenario), simulated_client.py, fault_model.py (faulty
candidates and devices), estimate_quality.py (the scheduler's estimates), simulation_result.py. On these:
workload_scenarios.py (workloads as scenarios), policy_benchmark.py (instances under policies), what_if.py,
thesis_workload.py (the load that the thesis measured), random_testing.py (random scenarios with many faults),
parallel.py (a process for each core).

Two simplifications make results slightly better than reality: steps that share a unit (policy `synchronous`) share it
fairly and without loss, and messages take no time.

Safety is judged by the world's own record of which step runs where, not by the scheduler's.
"""
