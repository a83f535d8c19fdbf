"""The daemon: one asyncio process that asks the core what to do, journals what happens, and does it.

It never imports a compiler: whatever may crash or hang runs in clients, which are processes of their own.

The way of an event: its source posts it (a session, a client's end, the timer); the runtime gives it `now`, hands it to
the core, writes it to the journal together with the steps that the core starts and what else must be as durable, and
performs the actions, all before it looks at the next one. So whatever is checked when an event's turn comes still holds
when it is handled, and what a user was told survives a crash. A start replays the journal through the same core, which
repeats the decisions that stand there, then declares the resources anew: steps of the former life are lost, jobs go on
from their records with new clients.

When the disk is full nothing is lost and nothing is acknowledged: submits are refused, everything else waits for the
writer, which tries again until it succeeds.

Files: compose.py (builds and connects all parts), runtime.py (the loop around the core), timeline.py (the steps that
ran), state_folder.py (the folder and its lock), environment.py (the process: collector, limits, cores), engine.py
(starts agents on a cluster), service_manager.py (systemd), settings_reload.py, policy_time_limit.py. Folders:
event_stream/ (what happens), storage/ (what outlives the daemon), recovery/ (after a crash), access/ (who may connect),
jobs/, boards/ (sessions with TVM RPC servers), clients/ (one process for each job), devices/ (whether they can be
trusted), hosts/ (other machines), observe/ (what people see), operations/ (what users ask for), console/ and web/
(where people look).
"""
