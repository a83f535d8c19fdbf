"""`autosched top`: the present state of a daemon, in a terminal.

Files: poller.py (polls the daemon, with bounded memory), daemon_view.py (its state at one moment), changes.py
(differences of two views), panels.py (panels as lines), app.py (with keys: textual, extra `tui`), dialogs.py (its
windows), plain.py (without keys: rich). All data come over the wire: a user with the role viewer may run it anywhere.
"""
