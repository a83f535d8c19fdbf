"""Stores of other schemas, and files of other formats."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import MetaData, text

from autosched.errors import StoreUnavailable
from autosched.recordstore import opening
from autosched.recordstore.queries import Lookup
from autosched.recordstore.store import RecordStore
from autosched.recordstore.tables import META
from autosched.version import LAST_UNRELEASED
from samples_of_store import CONV, HERE, LAB, measured


def test_tables_are_made_once(url: str) -> None:
    engine = opening.engine(opening.read_url(url))
    opening.create(engine)
    opening.create(engine)
    found = MetaData()
    found.reflect(engine)
    assert set(found.tables) == {*META.tables}
    for name, table in META.tables.items():
        made = found.tables[name]
        assert [column.name for column in made.columns] == [column.name for column in table.columns]
        assert [column.nullable for column in made.columns] == [column.nullable for column in table.columns]
        assert {index.name for index in made.indexes} == {index.name for index in table.indexes}
        assert [column.name for column in made.primary_key] == [column.name for column in table.primary_key]


def test_store_of_a_newer_program_is_refused_and_left_alone(url: str) -> None:
    engine = opening.engine(opening.read_url(url))
    opening.create(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '999'"))
    store = RecordStore(url)
    with pytest.raises(StoreUnavailable, match=r"written by a newer autosched \(schema 999\); install that"):
        store.add(LAB, [measured(0, 1e-3)])


def test_store_from_before_the_first_release_is_refused_with_the_way_to_upgrade_it(url: str) -> None:
    engine = opening.engine(opening.read_url(url))
    opening.create(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '6'"))
    with pytest.raises(
        StoreUnavailable, match=f"records list as of commit {LAST_UNRELEASED}, or name another database"
    ):
        RecordStore(url).add(LAB, [measured(0, 1e-3)])


def test_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(b"not a database, but longer than its header" * 100)
    with pytest.raises(StoreUnavailable, match=r"not a database.*move that file away"):
        RecordStore(f"sqlite:///{path}").cursor(LAB)


def test_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"unable to open database file.*check the disk"):
        RecordStore(f"sqlite:///{tmp_path}/no/records.db").cursor(LAB)


def test_store_works_again_after_its_error(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    url = f"sqlite:///{folder}/records.db"
    with contextlib.closing(RecordStore(url)) as store, contextlib.closing(Lookup(url)) as lookup:
        with pytest.raises(StoreUnavailable):
            store.cursor(LAB)
        folder.mkdir()
        store.add(LAB, [measured(0, 1e-3)])
        assert len(lookup.best(CONV.hash, HERE)) == 1


def test_sqlite_keeps_schedules_of_a_workload_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.db"
    RecordStore(url).add(LAB, [measured(0, 1e-3)])
    with contextlib.closing(sqlite3.connect(tmp_path / "records.db")) as db:
        (made,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'schedules'").fetchone()
    assert "WITHOUT ROWID" in made
