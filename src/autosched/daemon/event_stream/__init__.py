"""Observability: one stream of events, counters over it, and the views of people."""
