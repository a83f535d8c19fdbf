"""Table of stage times: a total for each workload, target and stage."""

from autosched.daemon.storage.batched_statements import Insert

TABLES = (
    "CREATE TABLE IF NOT EXISTS stage_times (workload TEXT, target TEXT, stage TEXT, count INTEGER, sum_s REAL,"
    " crc INTEGER, PRIMARY KEY (workload, target, stage)) STRICT, WITHOUT ROWID",
)
PUT = Insert(
    "stage_times", 6, "ON CONFLICT DO UPDATE SET count = excluded.count, sum_s = excluded.sum_s, crc = excluded.crc"
)
OF_WORKLOADS = (
    "SELECT workload, stage, count, sum_s FROM stage_times"
    " WHERE target = ? AND workload IN (SELECT value FROM json_each(?))"
)
