"""What outlives the daemon: journal and records in one database, its snapshots and backups, checks, repair; blobs."""
