"""Latencies of candidates, each measured once."""

import json
from pathlib import Path

from search_table import Table, key

ANCHOR, ONE, TWO = b'[["anchor"],[]]', b'[["one"],[[0,1]],{"seed":1}]', b'[["two"],[]]'


def begun(folder: Path) -> Table:
    table = Table(folder, "conv on a core")
    table.begin(ANCHOR, (2.0, 1.0, 1.1))
    return table


def test_a_later_search_finds_stored_measurements(tmp_path: Path) -> None:
    table = begun(tmp_path)
    table.keep(ONE, (0.5, 0.6), 0.3, 0.1)
    table.keep(TWO, (), 0.2, 0.0)
    later = Table(tmp_path, "conv on a core")
    assert later.anchor == ANCHOR
    assert ONE in later and TWO in later and ANCHOR not in later
    assert later[ONE] == table[ONE]
    assert (later[ONE].latency_s, later[ONE].build_s, later[ONE].profile_s) == (0.5, 0.3, 0.1)
    assert later[TWO].latency_s is None
    assert later.best_s == 0.5
    assert len(later) == 2
    assert not len(Table(tmp_path, "conv on another core"))


def test_equal_schedules_share_an_entry_whatever_their_annotations(tmp_path: Path) -> None:
    table = begun(tmp_path)
    table.keep(ONE, (0.5,), 0.3, 0.1)
    assert b'[["one"], [[0, 1]], {"seed": 2}]' in table
    assert b'[["one"],[[0,2]]]' not in table
    assert key(ONE) != key(TWO)


def test_the_fastest_sample_counts(tmp_path: Path) -> None:
    table = begun(tmp_path)
    table.keep(ONE, (1.5, 1.0, 9.0), 0.3, 0.1)
    assert table[ONE].latency_s == 1.0
    assert table.anchor_s == 1.0


def test_a_second_measurement_stands_beside_the_first(tmp_path: Path) -> None:
    table = begun(tmp_path)
    table.keep(ONE, (0.5,), 0.3, 0.1)
    table.keep(ONE, (0.6,), 9.0, 9.0, again=True)
    for one in (table, Table(tmp_path, "conv on a core")):
        entry = one[ONE]
        assert (entry.latency_s, entry.again_s, entry.build_s) == (0.5, 0.6, 0.3)


def test_a_truncated_line_is_left_out_and_rewritten(tmp_path: Path) -> None:
    table = begun(tmp_path)
    table.keep(ONE, (0.5,), 0.3, 0.1)
    (path,) = tmp_path.glob("*.jsonl")
    path.write_text(path.read_text() + '{"key":"abc","lat')
    later = Table(tmp_path, "conv on a core")
    assert len(later) == 1
    later.keep(TWO, (0.5,), 0.3, 0.1)
    assert len(Table(tmp_path, "conv on a core")) == 2
    assert all(json.loads(line) for line in path.read_text().splitlines())
