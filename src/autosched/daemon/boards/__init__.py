"""Boards: machines with a TVM RPC server. The daemon relays the sessions in which steps measure on them.

Files: rpc_handshake.py (the first bytes of a session), session_relay.py (relays one session between a program and a
board), board_sessions.py (grants sessions to steps), tracker_messages.py (the protocol of TVM's tracker),
board_registry.py (boards that register themselves), program_jobs.py (TVM programs that request boards),
tracker_port.py (the port for both).
"""
