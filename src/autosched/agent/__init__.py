"""The agent, which lends a machine to a daemon on another one: it starts and ends clients on its machine.

Files: agent_process.py (its folder, signals and log), agent.py (its connections to the daemon), client_keeper.py (the
clients on this machine), client_door.py (the socket for those that run apart), host_lease.py (ends them if the daemon
cannot be reached, or the agent is frozen), machine_facts.py (facts about this machine), device_paces.py (speed of its
devices), owner_watch.py (whether other programs use a borrowed machine).
"""
