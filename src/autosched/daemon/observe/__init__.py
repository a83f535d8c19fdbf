"""Views of the daemon's state for users and operators.

Files: views.py (jobs and devices for the protocol), usage.py (busy and idle time of units), status_line.py (the state
in one line), diagnostics.py (figures, queues, stalls), loop_monitor.py (lag of the event loop).
"""
