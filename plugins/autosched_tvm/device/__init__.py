"""Runs and times machine code on the device.

Files: `place` (this process, or a board), `kernel_profiling` (one candidate), `loaded_module` (a compiled network),
`inference_threads` (threads of this process that run networks), `thread_pool` (number of TVM's threads),
`operator_profiling` (each operator of a compiled network), `board_sentinel` (present speed of a board),
`board_features` (what a board's CPU grants), `gpu_place` (a GPU), `gpu_library` (code for it), `gpu_faults`
(whose fault its errors are).
"""
