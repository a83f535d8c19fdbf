"""Views of the daemon for people.

Files: views.py (jobs and devices as the protocol shows them), usage.py (how busy units were), status_line.py (the state
in one line), diagnostics.py (figures, queues, stalls), loop_monitor.py (lag of the event loop).
"""
