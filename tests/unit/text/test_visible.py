"""Words of others, made visible."""

import csv
import io
import json
from typing import Any

import msgspec
import pytest

from autosched.text import tables
from autosched.text.tables import Column
from autosched.text.visible import csv_cell, everywhere, one_line, visible, visible_json

CLEAR, C1, BIDI, ZERO, TAG = "\x1b]0;t\x07", "\x9b2J", "\u202egnp", "\u200b", "\U000e0041"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"), ("日本語 ελληνικά", "日本語 ελληνικά"), ("עברית", "עברית"), (CLEAR, "\\x1b]0;t\\x07"),
        (C1, "\\x9b2J"),
        (BIDI, "\\u202egnp"), (ZERO, "\\u200b"), (TAG, "\\U000e0041"), ("a\r\nb", "a\\x0d\nb"), ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"), ("\x7f", "\\x7f"), ("👩\u200d🔧", "👩\u200d🔧"), ("a\tb\nc", "a\tb\nc"),
    ],
)  # fmt: skip
def test_what_would_control_a_terminal_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_colours_of_this_program_stay_and_other_sequences_do_not() -> None:
    assert visible("\x1b[1mbold\x1b[0m", colours=True) == "\x1b[1mbold\x1b[0m"
    assert visible("\x1b[2J\x1b]0;t\x07", colours=True) == "\\x1b[2J\\x1b]0;t\\x07"
    assert visible("\x1b[1mbold") == "\\x1b[1mbold"


def test_json_keeps_its_meaning() -> None:
    value = {"name": CLEAR + C1 + BIDI + TAG}
    text = visible_json(msgspec.json.encode(value).decode())
    assert text.isascii()
    assert json.loads(text) == value


def test_a_text_on_one_line_has_no_line_end() -> None:
    assert one_line("a\nOK\r\n.\tb") == "a OK . b"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("=HYPERLINK(1)", False),
        ("+cmd", False),
        ("@SUM(A1)", False),
        ("-x", False),
        ("-5.2", True),
        ("+1e-3", True),
        ("a=b", True),
    ],
)  # fmt: skip
def test_no_cell_is_a_formula(text: str, kept: bool) -> None:
    assert csv_cell(text) == (text if kept else f"'{text}")
    written = tables.comma_separated([Column("NAME", str)], [text, "\x1b[2J"])
    rows = list(csv.reader(io.StringIO(written)))
    assert rows == [["NAME"], [csv_cell(text)], ["\\x1b[2J"]]


def test_all_texts_of_an_answer_are_made_visible() -> None:
    class Part(msgspec.Struct):
        name: str
        labels: dict[str, str]

    class Whole(msgspec.Struct, frozen=True):
        parts: tuple[Part, ...]
        number: int
        lines: list[str]

    found = everywhere(Whole((Part(C1, {BIDI: CLEAR}),), 7, ["a\nb"]))
    texts: list[Any] = [found.parts[0].name, *found.parts[0].labels.items(), found.number, found.lines]
    assert texts == ["\\x9b2J", ("\\u202egnp", "\\x1b]0;t\\x07"), 7, ["a b"]]
