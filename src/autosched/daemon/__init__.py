"""The daemon: one asyncio process that asks the core what to do, journals what happens, and does it.

It never imports a compiler: whatever may crash or hang runs in clients, which are processes of their own.

The way of an event: somebody posts it (a session, a client's end, the timer); the runtime gives it `now`, hands it to
the core, writes it to the journal together with the steps that the core starts and what else must be as durable, and
performs the actions, all before it looks at the next one. So whatever is checked when an event's turn comes still holds
when it is handled, and what a user was told survives a crash. A start replays the journal through the same core, which
repeats the decisions that stand there, then declares the resources anew: steps of the former life are lost, jobs go on
from their records with new clients.

When the disk is full nothing is lost and nothing is acknowledged: submits are refused, everything else waits for the
writer, which tries again until it succeeds.

Files: main.py (wiring, start, stop), runtime.py (the loop), journal.py (the database and its one writer), rows.py (rows
of one table together), store.py (records, networks, artifacts, spans), history.py (how long stages took), budget.py
(the time of a policy), blobs.py (files by content), clients.py and process.py (one process for each job),
client_session.py (what clients may ask), door.py (who is let in), entrance.py (where it listens), identity.py (what the
kernel says of a peer), keyring.py and failures.py (keys, and wrong ones), sessions.py (what users may ask),
admission.py (how many may submit at once), audit.py (who changed what), progress.py (how far each job is), timeline.py
(steps as spans), guard.py (what disturbs measurements), views.py (what people see), headline.py (all of it in one
line), ground.py (lock and sockets), service.py (what systemd is told, and gives).
"""
