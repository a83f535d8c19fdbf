"""What there is to schedule, as data: instance files, generated loads, and what a daemon recorded.

Neither a scheduler nor a clock is in here, so that the simulator, the mock backend and the benchmarks work on the same.
"""
