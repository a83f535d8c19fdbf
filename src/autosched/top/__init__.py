"""`autosched top`: a daemon as it is right now, in a terminal.

watch.py asks the daemon, again and again and never too much; news.py says what happened between two looks; panels.py
makes lines of it; app.py shows them with keys (textual, extra `tui`), plain.py without (rich). Everything that is
shown comes over the wire: whoever may look may run it anywhere.
"""
