"""Connections and frames. `autosched.protocol` defines the messages.

Files: address.py (syntax of addresses, TLS), frames.py (messages as bytes), link.py (a connection on asyncio),
blocking_link.py (a connection without an event loop), keys.py and handshake.py (proof of a key, then Hello),
blob_transfer.py (files by content hash), whereabouts.py (daemon.json: where a daemon runs), unix_sockets.py (paths of
any length), pauses.py (between attempts to connect), suspend_aware_clock.py (stands still while the process is
suspended).
"""
