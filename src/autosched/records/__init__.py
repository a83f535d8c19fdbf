"""Rules for stored measurements. Pure: no I/O.

Files: identity.py (what a measurement may be compared with).
"""
