"""Rankers with the version of their template. Earlier ones are dropped: they are trained again."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Make the table anew."""
    op.drop_table("rankers")
    op.create_table(
        "rankers",
        sa.Column("family", sa.Text, primary_key=True),
        sa.Column("device", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("schedules", sa.BigInteger, nullable=False),
        sa.Column("trained_at", sa.Double, nullable=False),
        sa.Column("quality", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
