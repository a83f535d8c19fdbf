"""Stores of both kinds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/records.db"
    running: postgres.Server = request.getfixturevalue("server")
    return running.database()
