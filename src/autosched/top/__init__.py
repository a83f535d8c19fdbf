"""`autosched top`: a daemon as it is right now, in a terminal.

Files: watch.py (asks the daemon, again and again and never too much), look.py (what it sees), news.py (what happened
between two looks), panels.py (lines of it), app.py (shows them with keys: textual, extra `tui`), dialogs.py (its small
windows), plain.py (without keys: rich). Everything that is shown comes over the wire: whoever may look may run it
anywhere.
"""
