"""All that outlives the daemon: journal and records in one database, models and results as files.

Files: database.py (connections), schema.py (tables and upgrades), journal.py (events in order), job_store.py (networks,
records, spans), blob_store.py (files by content hash), moved_files.py (files that move between hosts),
batched_statements.py (many rows in few statements), commit_mark.py (detects lost commits), stage_times.py,
failure_cases.py and audit_log.py (tables of other parts), integrity_check.py, pruning.py, row_salvage.py (what is sound
in a damaged database); record_projection.py (repeats records in the record store), projection_status.py (how far that
is), store_reader.py (asks the store in a thread), record_lookup.py (tells jobs what the store knows).
"""
