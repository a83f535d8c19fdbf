"""Schedules shared by all jobs: one database of measurements, SQLite by default or PostgreSQL.

The store copies the content of a daemon's own database, so that it can be lost, moved or shared without losing a
measurement. It is read by workload and environment of a measurement.

Files: keys.py (pure: strict and loose keys, digests), shapes.py (pure: similarity of workloads), rows.py (types of
rows), tables.py (tables of the present schema), opening.py (connections, deadlines, schema version), store.py (writes),
queries.py (best, all, other devices, nearest), catalogue.py (search by words and identifiers), collected.py (tasks
collected from networks), pruning.py (deletes), json_lines.py (a store as a file), table_files.py (CSV and Parquet).
"""
