"""The shared part of the backends on TVM: only this package and those backends use TVM.

Backends import the module `api`. Only clients and their child processes load TVM; the daemon, the command line and the
core never do.

Packages, from the lowest layer to the highest: `compile` (from models to tasks, and from schedules to machine code),
`device` (runs and times machine code), `evaluation` (compares a compiled network with other engines and checks its
outputs), `tuning` (a job's session: search, build, measure, publish), `record_formats` (files of other programs) and
`commands` (programs that other processes start). Beside them, `ranking` learns an order of schedules from records.

Modules: `worker_messages` (messages between a job's process and its workers), `worker_failures` (classifies errors of
workers), `worker_preload` (imports of each worker), `tensors` (inputs and outputs of a network), `tvm_types` (names of
TVM's types, for annotations), `granted_features` (CPU features that programs may use), `rounding` (rounding errors of
sums), `generated_inputs` (random inputs for a network), `source_fingerprint` (detects changes of code), `build_cache`
(builds of earlier jobs).
"""
