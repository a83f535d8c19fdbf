"""Runs and times machine code on the device.

Files: `kernel_profiling` (one candidate), `loaded_module` (a compiled network), `operator_profiling` (each operator of
a compiled network), `thread_pool` (number of TVM's threads).
"""
