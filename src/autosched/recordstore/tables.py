"""Tables of the store."""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)

META = MetaData()
ID = BigInteger().with_variant(Integer, "sqlite")
"""Type of a row number: SQLite assigns numbers to INTEGER only."""

ORIGINS = Table(
    "origins",
    META,
    Column("id", ID, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("imported", SmallInteger, nullable=False),
    Column("detail", Text, nullable=False),
    # How far the database of a daemon was repeated: the number of its last record here and of its last tag, and the
    # checksum of that record, which tells whether the database is still the one that was repeated.
    Column("records", BigInteger, nullable=False, server_default="0"),
    Column("records_crc", BigInteger, nullable=False, server_default="0"),
    Column("tags", BigInteger, nullable=False, server_default="0"),
)
JOBS = Table(
    "jobs",
    META,
    Column("id", ID, primary_key=True),
    Column("origin_id", ID, ForeignKey("origins.id"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("network", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("owner", Text, nullable=False),
    UniqueConstraint("origin_id", "number", name="uq_jobs_origin_number"),
)
WORKLOADS = Table(
    "workloads",
    META,
    Column("id", ID, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("flops", Double, nullable=False),
    Column("operator", Text, nullable=False),  # of the description, see `shapes.Shape`
    Index("ix_workloads_operator", "operator"),
)
ENVIRONMENTS = Table(
    "environments",
    META,
    Column("id", ID, primary_key=True),
    Column("strict_key", LargeBinary, nullable=False),
    Column("loose_key", LargeBinary, nullable=False),
    Column("target", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("compiler", Text, nullable=False),
    Column("measurement", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("device", Text, nullable=False),
    UniqueConstraint("strict_key", "device", name="uq_environments_strict_key_device"),
    Index("ix_environments_loose_key", "loose_key"),
)
MEASUREMENTS = Table(
    "measurements",
    META,
    Column("job_id", ID, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("record", BigInteger, primary_key=True, autoincrement=False),
    Column("id", LargeBinary, primary_key=True),  # keys.measurement_id
    Column("workload_id", ID, ForeignKey("workloads.id"), nullable=False),
    Column("environment_id", ID, ForeignKey("environments.id"), nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of the candidate
    Column("purpose", Text, nullable=False),
    Column("samples_s", Text, nullable=False),  # a JSON list
    Column("failure", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("disturbed", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("build_s", Double, nullable=False),
    Column("profile_s", Double, nullable=False),
    Column("measured_at", Double, nullable=False),
    Index("ix_measurements_digest", "digest"),
    sqlite_with_rowid=False,
)
"""One row for each measurement, in the order of arrival: rows written together are stored together."""
SCHEDULES = Table(
    "schedules",
    META,
    Column("workload_id", ID, ForeignKey("workloads.id"), primary_key=True, autoincrement=False),
    Column("environment_id", ID, ForeignKey("environments.id"), primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, primary_key=True),
    Column("best_s", Double),
    Column("standing", SmallInteger, nullable=False),
    Column("measured_at", Double, nullable=False),
    Column("measurement_id", LargeBinary, nullable=False),
    Column("job_id", ID, ForeignKey("jobs.id"), nullable=False),
    Column("samples_s", Text, nullable=False),
    Column("failure", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("candidate", LargeBinary, nullable=False),
    Column("own", SmallInteger, nullable=False, server_default="1"),  # measured by a daemon; 0: imported
    sqlite_with_rowid=False,
)
"""One row for each schedule of a workload in one environment, with its representative measurement.

In SQLite rows are stored in the order of their key, so that all schedules of a workload are read in one piece.
"""
PROGRAMS = Table(
    "programs",
    META,
    Column("workload_id", ID, ForeignKey("workloads.id"), primary_key=True, autoincrement=False),
    Column("form", Text, nullable=False),  # the program that can read it: "tvm 0.27"
    Column("content", LargeBinary, nullable=False),
)
"""Computations of workloads, for other programs that compile them."""
NETWORKS = Table(
    "networks",
    META,
    Column("id", ID, primary_key=True),
    Column("model", Text, nullable=False),  # content hash of its file
    Column("name", Text, nullable=False),
    Column("change", Text, nullable=False),  # "batch 4, resolution 0.75"; empty: as in the file
    Column("target", Text, nullable=False),  # as in `environments`
    Column("layout", Text, nullable=False),
    Column("importer", Text, nullable=False),  # versions of the importer: another one may find other tasks
    Column("notes", Text, nullable=False),  # a JSON list
    Column("collected_at", Double, nullable=False),
    UniqueConstraint("model", "change", "target", "layout", name="uq_networks_model_change_target_layout"),
)
"""Networks whose tasks were collected, in one size each."""
USES = Table(
    "uses",
    META,
    Column("network_id", ID, ForeignKey("networks.id"), primary_key=True, autoincrement=False),
    Column("workload_id", ID, ForeignKey("workloads.id"), primary_key=True, autoincrement=False),
    Column("weight", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""The tasks of collected networks, and the number of calls of each in an inference."""
RANKERS = Table(
    "rankers",
    META,
    Column("family", Text, primary_key=True),  # the operators that it ranks: the name of a schedule template
    Column("device", Text, primary_key=True),  # as in `environments`
    Column("version", Text, nullable=False),  # version of its schedules and features
    Column("schedules", BigInteger, nullable=False),  # number of schedules that it learned from
    Column("trained_at", Double, nullable=False),
    Column("quality", Text, nullable=False),  # a JSON object of numbers
    Column("content", LargeBinary, nullable=False),
)
"""Models that order schedules before anything is measured."""
VERSIONS = Table("alembic_version", META, Column("version_num", String(32), primary_key=True))
"""The version of the schema, in the form that Alembic expects: it can upgrade the tables of a later version."""
RANKER_KEY = ("family", "device")
"""Columns that identify a ranker."""
SCHEDULE_KEY = ("workload_id", "environment_id", "digest")
"""Columns that identify a schedule, in `schedules` and in `measurements`."""
_coded = SCHEDULES.c.code != ""
Index("ix_schedules_code", SCHEDULES.c.code, sqlite_where=_coded, postgresql_where=_coded)
_valid = SCHEDULES.c.best_s.is_not(None)
Index(
    "ix_schedules_best",
    SCHEDULES.c.workload_id,
    SCHEDULES.c.environment_id,
    SCHEDULES.c.best_s,
    sqlite_where=_valid,
    postgresql_where=_valid,
)
