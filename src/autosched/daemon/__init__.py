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

Files: main.py (start, wiring, stop), ground.py (the folder, its lock, whereabouts), service.py (what systemd is told,
and gives), runtime.py (the loop around the core), budget.py (the time of a policy), sessions.py (what a user may ask),
submissions.py (how a model becomes a job), operations.py (what is changed of jobs and units), reload.py (settings),
retention.py (ended jobs go), farewell.py (the end that waits). Folders: disk/ (what outlives the daemon), access/ (who
may come in), clients/ (one process for each job), devices/ (whether they can be trusted), telling/ (the stream of
happenings, and views of it), console/ and web/ (where people look).
"""
