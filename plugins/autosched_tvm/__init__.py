"""The shared part of the backends on TVM: only this package and those backends know TVM.

`api` is the module that a backend imports. Only clients and their child processes load TVM; the daemon, the command
line and the core never do.

Packages, from the lowest layer to the highest: `compile` (a model becomes tasks, a schedule becomes machine code),
`device` (runs and times machine code), `evaluation` (compares a compiled network with other engines and checks its
outputs), `tuning` (a job's session: search, build, measure, publish), `record_formats` (files of other programs) and
`commands` (programs that other processes start).

Modules: `worker_messages` (messages between a job's process and its workers), `worker_failures` (what an error
in a worker means), `worker_preload` (what each worker has imported), `tensors` (inputs and outputs of a network),
`generated_inputs` (inputs that fit a network), `source_fingerprint` (whether code still does what it did),
`build_cache` (builds of earlier jobs).
"""
