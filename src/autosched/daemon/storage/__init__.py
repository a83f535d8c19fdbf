"""Storage: journal and records in one database, its snapshots and backups, checks, repair; blobs."""
