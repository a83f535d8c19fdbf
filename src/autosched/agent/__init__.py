"""The agent, which lends a machine to a daemon on another one: it starts clients there, and ends them.

Files: agent_process.py (its folder, signals and log), agent.py (its connections to the daemon), client_keeper.py (the
clients on this machine), host_lease.py (ends them when the daemon cannot be reached, or the agent is frozen),
machine_facts.py (what this machine is), device_paces.py (how fast its devices are), owner_watch.py (whether other
programs use a borrowed machine).
"""
