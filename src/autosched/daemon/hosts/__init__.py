"""Other machines that agents lend to the daemon.

Files: host_registry.py (the hosts, their leases and their clients), lent_units.py (names and kinds of a host's units),
device_comparison.py (decides which devices are comparable), remote_client.py (a client on another host), host_views.py
(hosts for the protocol).
"""
