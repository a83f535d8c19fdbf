"""Tuning of one job: the parts that backends on TVM share.

In the order in which to read: `tvm_backend` (base class of a backend), `options`, `session` (the stages of a job),
`tuner` (the search of one task), `search_method` (the interface of searches), `fallback` (a second method for tasks
that the first cannot tune), `kernel_measurer` (builds and measures candidates), `job_measurements` (measurements of the
job), `early_stopping`, `sketch_space` and `schedule_traces` (MetaSchedule's design space and its schedules),
`blocked_sketch` (a sketch for convolutions in blocked layouts).
"""
