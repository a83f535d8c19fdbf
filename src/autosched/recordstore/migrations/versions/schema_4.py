"""Tables of networks whose tasks were collected."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    texts = ("model", "name", "change", "target", "layout", "importer", "notes")
    op.create_table(
        "networks",
        sa.Column("id", ID, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in texts),
        sa.Column("collected_at", sa.Double, nullable=False),
        sa.UniqueConstraint("model", "change", "target", "layout", name="uq_networks_model_change_target_layout"),
    )
    op.create_table(
        "uses",
        sa.Column("network_id", ID, sa.ForeignKey("networks.id"), primary_key=True, autoincrement=False),
        sa.Column("workload_id", ID, sa.ForeignKey("workloads.id"), primary_key=True, autoincrement=False),
        sa.Column("weight", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
