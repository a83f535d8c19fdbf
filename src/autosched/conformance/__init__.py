"""Tools for authors of backends: interface checks, a template package, and runs in a debugger.

    from autosched.conformance import BackendContract

    class TestMine(BackendContract):
        backend = MyBackend

Inherit `BackendContract` and run pytest, or `autosched plugin check NAME`. Files for the checks: contract.py (for
pytest), check_runner.py and check_process.py (run each check in a process that may die), backend_harness.py (drives a
backend as a client does), stage_checks.py, search_checks.py, warm_start_checks.py, baseline_checks.py,
process_checks.py. Files for the commands: scaffold.py with template/ (`new`), installed_backends.py,
backend_description.py and option_help.py (`list`), local_job.py (`run`), plugin_errors.py (locates errors in plugin
code).
"""

from autosched.conformance.contract import BackendContract

__all__ = ["BackendContract"]
