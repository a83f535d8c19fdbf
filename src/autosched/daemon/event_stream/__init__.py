"""The stream of the daemon's events.

Files: daemon_events.py (types of events, their text and JSON), stream.py (publishes events to listeners), logs.py (the
log), counters.py (counters and histograms), recent_events.py (the latest events), event_sentences.py (events as
sentences).
"""
