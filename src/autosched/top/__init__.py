"""`autosched top`: a daemon as it is right now, in a terminal.

Files: poller.py (asks the daemon, with bounded memory), daemon_view.py (its state at one moment), changes.py
(differences of two views), panels.py (as lines), app.py (shows them with keys: textual, extra `tui`), dialogs.py (its
windows), plain.py (without keys: rich). Everything that is shown comes over the wire: a user who may look may run it
anywhere.
"""
