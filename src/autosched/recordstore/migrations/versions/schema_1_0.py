"""The schema of the first release: the last one before it, with a number that no earlier one had."""

revision = "1.0"
down_revision = "6"


def upgrade() -> None:
    """Change nothing."""
