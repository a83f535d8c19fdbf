"""Restores the daemon's state after a crash, and makes copies of it.

Files: state_recovery.py (creates the state from the newest snapshot and later rows), snapshot.py, backups.py,
maintenance.py (makes snapshots and backups in a process of low priority), repair.py (replaces a damaged database).
"""
