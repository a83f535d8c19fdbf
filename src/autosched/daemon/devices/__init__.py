"""Whether devices and what is measured on them can be trusted, and what follows.

Files: device_monitor.py (drift and other load), attribution_handler.py (what follows from failures), quarantine.py.
"""
