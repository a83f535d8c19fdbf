"""The processes that host jobs, as the daemon has them.

Files: supervisor.py (starts, orders, watches, kills and adopts them), client_state.py (what is known of one),
client_session.py (answers the calls of one), helper_registry.py (processes that run stages of a job on other hosts),
start_queue.py (as many start at once as there are cores), adoption.py
(how the next daemon adopts those that survived).
"""
