"""Files in which other programs on TVM keep what they measured.

Files: `metaschedule` (databases of MetaSchedule, in and out).
"""
