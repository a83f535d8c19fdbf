"""The client: one process that hosts one job, and runs a step only when the daemon says so.

Files: __main__.py (start-up, wire, heartbeats), course.py (the course of a job: what each task needs next, pure),
allocation.py (which task deserves the next round), worker.py (runs the backend's stages in threads on leased cores).

The event loop's thread does nothing but the wire, so a step that is busy for minutes cannot silence the heartbeat.
A client holds nothing that cannot be rebuilt from (job, seed, records): it may be killed at any time, and it ends
itself when it loses the daemon.
"""
