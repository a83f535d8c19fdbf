"""Table of rankers."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "rankers",
        sa.Column("family", sa.Text, primary_key=True),
        sa.Column("device", sa.Text, primary_key=True),
        sa.Column("features", sa.Integer, nullable=False),
        sa.Column("schedules", sa.BigInteger, nullable=False),
        sa.Column("trained_at", sa.Double, nullable=False),
        sa.Column("quality", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
