"""Stores of other schemas, and files of other formats."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import MetaData, insert, select, text, update

from autosched.errors import StoreUnavailable
from autosched.model import Program
from autosched.recordstore import opening
from autosched.recordstore.queries import Lookup
from autosched.recordstore.store import RecordStore
from autosched.recordstore.tables import META
from samples_of_store import CONV, HERE, LAB, measured


def test_migrations_make_the_tables_that_the_program_uses(url: str) -> None:
    engine = opening.engine(opening.read_url(url))
    opening.migrate(engine)
    opening.migrate(engine)
    found = MetaData()
    found.reflect(engine)
    assert set(found.tables) == {*META.tables, "alembic_version"}
    for name, table in META.tables.items():
        made = found.tables[name]
        assert [column.name for column in made.columns] == [column.name for column in table.columns]
        assert [column.nullable for column in made.columns] == [column.nullable for column in table.columns]
        assert {index.name for index in made.indexes} == {index.name for index in table.indexes}
        assert [column.name for column in made.primary_key] == [column.name for column in table.primary_key]


@pytest.mark.parametrize("schema", [str(number) for number in range(1, 7)])
def test_store_of_an_earlier_schema_is_brought_up_to_date_with_its_data(schema: str, url: str, tmp_path: Path) -> None:
    rows = [measured(n, 1e-3 * (1 + n)) for n in range(5)]
    with contextlib.closing(RecordStore(f"sqlite:///{tmp_path}/sample.db")) as sample:
        sample.add(LAB, rows)
        sample.add_programs({CONV: Program("tvm 0.27", b"as it was")})
    old = opening.engine(opening.read_url(url))
    opening.migrate(old, schema)
    there = MetaData()
    there.reflect(old)
    with opening.engine(opening.read_url(f"sqlite:///{tmp_path}/sample.db")).begin() as source, old.begin() as target:
        for table in META.sorted_tables:
            if table.name not in there.tables or table.name == "rankers":  # schema 6 makes it anew
                continue
            names = [column.name for column in there.tables[table.name].columns]
            now = {"trial": "record"}
            found = source.execute(select(*(table.c[now.get(name, name)].label(name) for name in names)))
            if rows_there := [dict(one) for one in found.mappings().all()]:
                target.execute(insert(there.tables[table.name]).values(rows_there))
    if "programs" not in there.tables:  # schema 3 writes it anew
        with old.begin() as target:
            target.execute(update(META.tables["environments"]).values(loose_key=b"old"))
    with contextlib.closing(Lookup(url)) as lookup:
        assert len(lookup.hints(CONV.hash, replace(HERE, compiler="another 2"), 9)) == len(rows)
        assert [one.candidate for one in lookup.best(CONV.hash, HERE, 9)] == [one.record.candidate for one in rows]
        assert len(lookup.programs([CONV.hash])) == ("programs" in there.tables)
        assert lookup.of_code([rows[3].record.code], HERE)[0].candidate == rows[3].record.candidate
    with contextlib.closing(RecordStore(url)) as store:
        store.add(LAB, [measured(9, 9e-3)])
        assert store.count() == 6


def test_store_of_a_newer_program_is_refused_and_left_alone(url: str) -> None:
    engine = opening.engine(opening.read_url(url))
    opening.migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '999'"))
    store = RecordStore(url)
    with pytest.raises(StoreUnavailable, match=r"written by a newer autosched \(schema 999\); install that"):
        store.add(LAB, [measured(0, 1e-3)])


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


def test_wheel_has_the_migrations() -> None:
    folder = Path(opening.__file__).with_name("migrations")
    assert (folder / "env.py").exists()
    assert [*(folder / "versions").glob("schema_*.py")]


def test_sqlite_keeps_schedules_of_a_workload_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.db"
    RecordStore(url).add(LAB, [measured(0, 1e-3)])
    with contextlib.closing(sqlite3.connect(tmp_path / "records.db")) as db:
        (made,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'schedules'").fetchone()
    assert "WITHOUT ROWID" in made
