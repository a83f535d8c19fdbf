"""Stores of both kinds."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres
from autosched.recordstore.queries import Lookup
from autosched.recordstore.store import RecordStore


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/records.db"
    running: postgres.Server = request.getfixturevalue("postgresql")
    return running.database()


@pytest.fixture
def store(url: str) -> Iterator[RecordStore]:
    with contextlib.closing(RecordStore(url)) as made:
        yield made


@pytest.fixture
def lookup(url: str) -> Iterator[Lookup]:
    with contextlib.closing(Lookup(url)) as made:
        yield made
