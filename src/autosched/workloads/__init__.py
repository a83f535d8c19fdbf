"""Loads as data: instance files, generated loads, and recordings of daemons.

Neither a scheduler nor a clock is in here, so that the simulator, the mock backend and the benchmarks work on the same.
"""
