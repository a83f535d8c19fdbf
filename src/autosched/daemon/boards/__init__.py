"""Boards: machines with a TVM RPC server, on which steps measure through sessions that the daemon relays.

Files: rpc_handshake.py (the first bytes of a session), session_relay.py (one session between a program and a board),
board_sessions.py (which steps may have one, and with which board).
"""
