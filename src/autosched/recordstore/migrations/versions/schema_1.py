"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "origins",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("imported", sa.SmallInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("records_crc", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("tags", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", ID, primary_key=True),
        sa.Column("origin_id", ID, sa.ForeignKey("origins.id"), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "network", "model", "owner")),
        sa.UniqueConstraint("origin_id", "number", name="uq_jobs_origin_number"),
    )
    op.create_table(
        "workloads",
        sa.Column("id", ID, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("shape", sa.Text, nullable=False),
        sa.Column("flops", sa.Double, nullable=False),
        sa.Column("operator", sa.Text, nullable=False),
    )
    op.create_index("ix_workloads_operator", "workloads", ["operator"])
    op.create_table(
        "environments",
        sa.Column("id", ID, primary_key=True),
        sa.Column("strict_key", sa.LargeBinary, nullable=False),
        sa.Column("loose_key", sa.LargeBinary, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("threads", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("compiler", "measurement", "backend", "template", "device")
        ),
        sa.UniqueConstraint("strict_key", "device", name="uq_environments_strict_key_device"),
    )
    op.create_index("ix_environments_loose_key", "environments", ["loose_key"])
    op.create_table(
        "measurements",
        sa.Column("job_id", ID, sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("trial", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("workload_id", ID, sa.ForeignKey("workloads.id"), nullable=False),
        sa.Column("environment_id", ID, sa.ForeignKey("environments.id"), nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("purpose", "samples_s", "failure", "detail", "disturbed", "code", "unit")
        ),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("build_s", "profile_s", "measured_at")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_measurements_digest", "measurements", ["digest"])
    op.create_table(
        "schedules",
        sa.Column("workload_id", ID, sa.ForeignKey("workloads.id"), primary_key=True, autoincrement=False),
        sa.Column("environment_id", ID, sa.ForeignKey("environments.id"), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("best_s", sa.Double),
        sa.Column("standing", sa.SmallInteger, nullable=False),
        sa.Column("measured_at", sa.Double, nullable=False),
        sa.Column("measurement_id", sa.LargeBinary, nullable=False),
        sa.Column("job_id", ID, sa.ForeignKey("jobs.id"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("samples_s", "failure", "code")),
        sa.Column("candidate", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    valid = sa.text("best_s IS NOT NULL")
    op.create_index(
        "ix_schedules_best",
        "schedules",
        ["workload_id", "environment_id", "best_s"],
        sqlite_where=valid,
        postgresql_where=valid,
    )
