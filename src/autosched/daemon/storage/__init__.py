"""All durable data: journal and records in one database; models and results as files.

Files: database.py (paths, connections), schema.py (version, checksums), first release), journal.py (events in order),
job_store.py (networks, records, spans), blob_store.py (files by content hash), upload_quota.py (bounds the uploads of
each user), moved_files.py (files that move between hosts), batched_statements.py (many rows in few statements),
commit_mark.py (detects lost commits), disk_reserve.py (space for the time when the disk is full), stage_times.py,
failure_cases.py and audit_log.py (tables of other parts), integrity_check.py, pruning.py, row_salvage.py (recovers the
sound rows of a damaged database); record_projection.py (copies records to the record store), projection_status.py (its
progress), store_reader.py (queries the store in a thread), record_lookup.py (answers clients from the store).
"""
