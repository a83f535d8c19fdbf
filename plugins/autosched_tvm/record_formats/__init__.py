"""Files with measurements of other programs on TVM.

Files: `metaschedule` (databases of MetaSchedule, in and out), `tuning_logs` (logs of AutoTVM and Ansor, as seeds),
`foreign_record` (a record of another program as a measurement).
"""
