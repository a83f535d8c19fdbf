"""Loads as data: instance files, generated loads, and recordings of daemons.

Contains neither a scheduler nor a clock, so that the simulator, the mock backend and the benchmarks use the same loads.
"""
