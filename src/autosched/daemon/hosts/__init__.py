"""Hosts beside the daemon's own, which agents lend.

Files: host_registry.py (which there are, and until when each is trusted), lent_units.py (names and kinds of their
units), device_comparison.py (which devices are comparable), remote_client.py (a client that runs on one), host_views.py
(hosts as the protocol shows them).
"""
