"""Runs and times machine code on the device.

Files: `place` (where it runs: in this process, or on a board), `kernel_profiling` (one candidate), `loaded_module` (a
compiled network), `operator_profiling` (each operator of a compiled network), `board_sentinel` (how fast a board is at
present), `thread_pool` (number of TVM's threads).
"""
