"""The client: one process that hosts one job, and runs a step only when the daemon says so.

Files: host.py (answers the daemon, runs the steps it orders), line.py (what is said to it, over lost connections too),
course.py (the course of a job: what each task needs next, pure), with allocation.py (which task deserves the next
round), rounds.py (rounds told from records) and early.py (when the network is built before the search is over);
worker.py (the backend's stages, in threads on leased cores), with border.py (what foreign code hands over is checked),
poison.py (what must not be run) and quiet.py (whether the device's cores are at rest); backstop.py (a process beside
that ends a frozen client); visitor.py (a client for one step).

The event loop's thread does nothing but the wire, so a step that is busy for minutes cannot silence the heartbeat.
A client holds nothing that cannot be rebuilt from (job, seed, records): it may be killed at any time, and it ends
itself when it loses the daemon.
"""
