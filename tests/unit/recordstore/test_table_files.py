"""Tables of measurements for notebooks."""

import base64
import csv
import io
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from autosched.errors import RequestError
from autosched.recordstore import table_files
from autosched.recordstore.rows import Measurement, Origin
from samples_of_store import LAB, measured

FOUND: list[tuple[Origin, Measurement]] = [
    (LAB, measured(0, 1e-3)),
    (LAB, measured(1, None, disturbed='a "quoted", word\nand a line')),
    (Origin("file", imported=True), measured(2, 2e-3)),
]


def test_csv_has_a_row_for_each_measurement() -> None:
    file = io.BytesIO()
    assert table_files.write_csv(table_files.rows(FOUND), table_files.COLUMNS, file) == 3
    rows = list(csv.DictReader(io.StringIO(file.getvalue().decode())))
    assert list(rows[0]) == list(table_files.COLUMNS)
    assert [row["latency_s"] for row in rows] == ["0.0011", "", "0.0022"]
    assert [row["imported"] for row in rows] == ["False", "False", "True"]
    assert rows[1]["disturbed"] == 'a "quoted", word\nand a line'
    assert base64.b64decode(rows[2]["candidate"]) == b"schedule 2"
    assert json.loads(rows[0]["samples_s"]) == list(FOUND[0][1].record.latency_s)


def test_parquet_has_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH", 2)
    assert table_files.write_parquet(table_files.rows(FOUND), table_files.COLUMNS, tmp_path / "all.parquet") == 3
    assert parquet.read_table(tmp_path / "all.parquet").to_pylist() == [table_files.row(*one) for one in FOUND]


def test_an_empty_store_gives_an_empty_table(tmp_path: Path) -> None:
    assert table_files.write_parquet(table_files.rows([]), table_files.COLUMNS, tmp_path / "none.parquet") == 0
    assert parquet.read_table(tmp_path / "none.parquet").column_names == list(table_files.COLUMNS)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(RequestError, match=r"autosched\[parquet\]"):
        table_files.write_parquet(table_files.rows(FOUND), table_files.COLUMNS, tmp_path / "all.parquet")
