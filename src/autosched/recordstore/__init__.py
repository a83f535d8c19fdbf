"""Schedules that all jobs share: one database of measurements, SQLite by default or PostgreSQL.

The store repeats what a daemon's own database holds, so that it can be lost, moved or shared without losing a
measurement. It is read by the workload and the circumstances of a measurement.

Files: keys.py (pure: strict and loose keys, digests), shapes.py (pure: which workloads are alike), rows.py (what is
written and found), tables.py (tables of the present schema), opening.py (connections, deadlines, migrations),
store.py (writes), queries.py (best, all, other devices, nearest), catalogue.py (search by words and identifiers),
collected.py (tasks that were collected from networks), pruning.py (deletes), json_lines.py (a store as a file),
table_files.py (CSV and Parquet), migrations/ (Alembic: from each schema to the next).
"""
