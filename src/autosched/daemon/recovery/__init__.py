"""The daemon's state after a crash, and copies of it.

Files: state_recovery.py (newest snapshot and later rows become a runtime), snapshot.py, backups.py, maintenance.py
(snapshots and backups in a process of low priority), repair.py.
"""
