import json

import pytest
from msgspec import Struct

from autosched.cli.output import colours, document, table


class Thing(Struct):
    name: str


def test_a_table_fits_80_columns_by_cutting_its_flexible_column() -> None:
    text = table(("JOB", "MODEL", "REASON"), [("1", "net", "x" * 200), ("12", "squeezenet", "short")], right=(0,))
    lines = text.splitlines()
    assert max(map(len, lines)) == 80
    assert lines[1].endswith("…")
    assert lines[2] == "  12  squeezenet  short"


def test_a_document_names_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    document("things", [Thing("a")])
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "things": [{"name": "a"}]}


class Terminal:
    def isatty(self) -> bool:
        return True


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours(Terminal())
