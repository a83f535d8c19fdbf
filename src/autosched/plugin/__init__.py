"""Tools for the author of a plugin: a package that works to begin with, a list, checks, runs in a debugger.

Files: scaffold.py with template/ (`new`), listing.py, probe.py and option_help.py (`list`), trial.py (`run`), blame.py
(whose code failed, and where); for `check` there is autosched.conformance.
"""
