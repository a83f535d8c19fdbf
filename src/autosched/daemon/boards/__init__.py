"""Boards: machines with a TVM RPC server, on which steps measure through sessions that the daemon relays.

Files: rpc_handshake.py (the first bytes of a session), session_relay.py (one session between a program and a board),
board_sessions.py (which steps may have one, and with which board), tracker_messages.py (what is said to TVM's tracker),
board_registry.py (boards that register themselves), program_jobs.py (programs of TVM's that ask for boards),
tracker_port.py (the port for both).
"""
