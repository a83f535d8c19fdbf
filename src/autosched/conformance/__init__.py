"""Tests for those who write a backend: inherit `BackendContract` and run pytest, or `autosched plugin check NAME`.

    from autosched.conformance import BackendContract

    class TestMine(BackendContract):
        backend = MyBackend

Files: contract.py (for pytest), runner.py and child.py (each check in a process that may die), bench.py (drives a
backend as a client does), search.py, teaching.py, stages.py, comparing.py, process.py (the checks), transcripts.py
(stories told to the scheduler, for its own tests).
"""

from autosched.conformance.contract import BackendContract

__all__ = ["BackendContract"]
