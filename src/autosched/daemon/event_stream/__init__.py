"""One stream of what happens in the daemon.

Files: daemon_events.py (types of events, their text and JSON), stream.py (passes them to listeners), logs.py (the
log), counters.py (counters and histograms), recent_events.py (the last ones), event_sentences.py (as sentences).
"""
