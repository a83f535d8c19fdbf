"""Monitors devices and reacts to unreliable ones.

Files: device_monitor.py (detects drift and other load, tags records), attribution_handler.py (attributes failures to
candidates or devices), quarantine.py (isolates, treats and probes devices), gpu_watch.py (asks the driver for
the states of GPUs).
"""
