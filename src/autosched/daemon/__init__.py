"""The daemon: one asyncio process that runs the core, journals events and decisions, and performs the actions.

The daemon never imports a compiler: code that may crash or hang runs in clients, which are separate processes.

Path of an event: a source (a session, a client's end, the timer) posts it. The runtime stamps it with the time, passes
it to the core, and writes it to the journal together with the steps that the core starts. When these are durable, the
runtime performs the actions and answers. Checks in an event's turn therefore still hold when it is handled, and answers
survive a crash. A start replays the journal through the same core, which repeats the decisions in it, then declares the
resources. Jobs go on from their records.

When the disk is full, nothing is lost and nothing is acknowledged: submissions are refused, and all other events wait
for the writer, which retries until it succeeds.

Files: compose.py (builds and connects all parts), answers.py (the table of methods), runtime.py (the loop around the
core), timeline.py (the steps that ran), state_folder.py (the folder and its lock), environment.py (the process:
collector, limits, cores), engine.py (starts agents on a cluster), service_manager.py (systemd), settings_reload.py,
policy_time_limit.py. Folders: event_stream/ (events), storage/ (database and files), recovery/ (after a crash), access/
(authentication), jobs/, boards/ (sessions with TVM RPC servers), clients/ (client processes), devices/ (reliability of
devices), hosts/ (other machines), observe/ (views), operations/ (methods of users), console/ and web/ (user
interfaces).
"""
