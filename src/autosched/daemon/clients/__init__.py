"""Client processes, each of which runs one job, from the daemon's side.

Files: supervisor.py (starts, orders, watches, kills and adopts clients), separation.py (which jobs run apart),
client_state.py (state of one client), client_session.py (answers the calls of one client), helper_registry.py
(processes that run stages of a job on other hosts), memory_limit.py (how much memory they may hold), start_queue.py
(bounds how many clients start at the same time), adoption.py (finds clients that have survived the daemon before this
one).
"""
