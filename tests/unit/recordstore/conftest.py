"""Stores of both kinds."""

from pathlib import Path

import pytest

import postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/records.db"
    running: postgres.Server = request.getfixturevalue("postgresql")
    return running.database()
