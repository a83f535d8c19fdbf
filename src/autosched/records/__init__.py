"""What holds for stored measurements: pure rules, without I/O.

Files: identity.py (what a measurement may be compared with).
"""
