"""A store as a file: nothing is lost or duplicated, and a wrong line does not stop an import."""

import contextlib
import io
from pathlib import Path

import msgspec
import pytest

from autosched.errors import RequestError
from autosched.model import Failure, Identity, Program, Purpose
from autosched.recordstore import json_lines
from autosched.recordstore.keys import environment
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Measurement, Origin, Tag, Workload
from autosched.recordstore.store import RecordStore
from samples_of_store import CONV, HERE, JOB, LAB, measured

pytestmark = pytest.mark.slow

OTHER = Origin("other", detail="lab2")
POOL = Workload("beef", "max_pool", "max_pool 64x8x8 -> 64x4x4", 1e3)
THERE = environment(Identity('{"kind": "llvm"}', "Xeon", "tvm 0.28", "ansor 2", "tvm 1"), "ansor", "trace 1")
ROWS = [
    measured(1, 2e-3), measured(2, 1e-3, purpose=Purpose.FINAL), measured(3, 3e-3, disturbed="load"),
    measured(4, 1.5e-3, workload=POOL, where=THERE), measured(5, 2.5e-3, job=msgspec.structs.replace(JOB, number=8)),
]  # fmt: skip


def failed(one: Measurement) -> Measurement:
    record = msgspec.structs.replace(one.record, latency_s=(), failure=Failure.RUN_CRASH, detail='it "crashed"\n')
    return msgspec.structs.replace(one, record=record)


def filled(path: Path, rows: list[Measurement], origin: Origin = LAB) -> str:
    url = f"sqlite:///{path}"
    with contextlib.closing(RecordStore(url)) as store:
        store.add(origin, rows)
    return url


def exported(url: str) -> bytes:
    file = io.BytesIO()
    with contextlib.closing(Lookup(url)) as lookup:
        json_lines.write(lookup.everything(), lookup.programs, file)
    return file.getvalue()


def taken(url: str, text: bytes) -> tuple[json_lines.Taken, dict[int, str]]:
    told: dict[int, str] = {}
    with contextlib.closing(RecordStore(url)) as store:
        return json_lines.read(io.BytesIO(text), store, told.__setitem__), told


def taken_beside_own(url: str, text: bytes, file_first: bool) -> list[int]:
    """Imports a file twice, before the daemon writes a measurement or after it; returns the numbers of new rows."""
    new = [taken(url, text)[0].new for _ in range(2 if file_first else 0)]
    with contextlib.closing(RecordStore(url)) as store:
        store.add(LAB, [measured(1, 1e-3)])
    return new or [taken(url, text)[0].new for _ in range(2)]


def test_programs_travel_with_their_workloads(url: str, tmp_path: Path) -> None:
    program = Program("tvm 0.27", b"\x00packed")
    with contextlib.closing(RecordStore(url)) as store:
        store.add(LAB, ROWS)
        store.add_programs({CONV: program})
    text = exported(url)
    assert text.count(b'"form"') == 1
    copy, merged = f"sqlite:///{tmp_path}/copy.db", f"sqlite:///{tmp_path}/merged.db"
    taken(copy, text)
    with contextlib.closing(Lookup(url)) as source, contextlib.closing(RecordStore(merged)) as target:
        json_lines.merge(source.everything(), source.programs, target)
    for one in (copy, merged):
        with contextlib.closing(Lookup(one)) as lookup:
            assert lookup.programs({CONV.hash}) == {CONV.hash: program}


def test_a_store_comes_out_of_its_file_as_it_was(url: str, tmp_path: Path) -> None:
    rows = [*ROWS, failed(measured(6, 1.0))]
    with contextlib.closing(RecordStore(url)) as store:
        assert store.add(LAB, rows) == len(rows)
    text = exported(url)
    assert text.count(b"\n") == len(rows)
    copy = f"sqlite:///{tmp_path}/copy.db"
    found, wrong = taken(copy, text)
    assert (found.lines, found.new, found.known, wrong) == (len(rows), len(rows), 0, {})
    assert sorted(exported(copy).splitlines()) == sorted(text.splitlines())
    with contextlib.closing(Lookup(copy)) as lookup:
        best = lookup.best(CONV.hash, HERE, 9)
        assert [one.best_s for one in best] == pytest.approx([1.1e-3, 2.2e-3, 2.75e-3, 3e-3])
        assert all(one.origin == Origin(LAB.name, True, LAB.detail) for one in best)
        assert best[0].job == JOB


def test_a_file_taken_in_twice_doubles_nothing(url: str, tmp_path: Path) -> None:
    text = exported(filled(tmp_path / "a.db", ROWS))
    assert taken(url, text)[0].new == len(ROWS)
    again = taken(url, text)[0]
    assert (again.lines, again.new, again.known) == (len(ROWS), 0, len(ROWS))
    assert sorted(exported(url).splitlines()) == sorted(text.splitlines())


def test_two_stores_that_take_each_other_hold_the_same(tmp_path: Path) -> None:
    one = filled(tmp_path / "one.db", ROWS[:4])
    other = filled(tmp_path / "other.db", ROWS[2:], OTHER)
    first, second = exported(one), exported(other)
    taken(other, first)
    taken(one, second)
    lines = sorted(exported(one).splitlines())
    assert lines == sorted(exported(other).splitlines())
    assert len(lines) == 4 + 3


def test_what_was_measured_here_stays_measured_here(tmp_path: Path) -> None:
    here = filled(tmp_path / "here.db", ROWS)
    assert taken(here, exported(here))[0].new == 0
    with contextlib.closing(Lookup(here)) as lookup:
        assert all(not one.origin.imported for one in lookup.best(CONV.hash, HERE, 9))


@pytest.mark.parametrize("file_first", [True, False])
def test_a_file_that_claims_to_be_of_this_daemon_does_not_count_as_measured_here(
    file_first: bool, url: str, tmp_path: Path
) -> None:
    forged = exported(filled(tmp_path / "forged.db", [measured(7, 1e-9, purpose=Purpose.FINAL)]))
    new = taken_beside_own(url, forged, file_first)
    assert new == [1, 0]
    with contextlib.closing(Lookup(url)) as lookup:
        found = {one.candidate: one.origin.imported for one in lookup.best(CONV.hash, HERE, 9)}
    assert found == {b"schedule 1": False, b"schedule 7": True}


@pytest.mark.parametrize("file_first", [True, False])
def test_a_file_never_stands_for_what_was_measured_here(file_first: bool, url: str, tmp_path: Path) -> None:
    claim = measured(1, 1e-9, purpose=Purpose.FINAL, origin=OTHER)
    claim = msgspec.structs.replace(claim, record=msgspec.structs.replace(claim.record, measured_at=9e9))
    forged = exported(filled(tmp_path / "forged.db", [claim], OTHER))
    taken_beside_own(url, forged, file_first)
    with contextlib.closing(Lookup(url)) as lookup:
        (found,) = lookup.best(CONV.hash, HERE, 9)
    assert (found.best_s, found.origin.imported) == (1.1e-3, False)


def test_a_disturbance_that_was_found_later_comes_along(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one.db", ROWS[:1]), f"sqlite:///{tmp_path}/other.db"
    assert taken(other, exported(one))[0].new == 1
    with contextlib.closing(RecordStore(one)) as store:
        store.add(LAB, [], [Tag(JOB.number, 1, "a neighbour")])
    assert taken(other, exported(one))[0].new == 0
    with contextlib.closing(Lookup(other)) as lookup:
        assert [found.record.disturbed for _, found in lookup.everything()] == ["a neighbour"]


def test_wrong_lines_are_told_and_end_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LINE_BYTES_MAX", 5_000)
    good = exported(filled(tmp_path / "a.db", ROWS[:2])).splitlines()
    line = msgspec.json.decode(good[0])
    negative = {**line, "record": {**line["record"], "latency_s": [-1.0]}}
    newer = {**line, "format": 99}
    text = b"\n".join(
        [b"no json", good[0], b"", b"{}", msgspec.json.encode(negative), msgspec.json.encode(newer), b"x" * 20_000,
         b"[" * 4_000, b"\xff\xfe", good[1]]
    )  # fmt: skip
    found, wrong = taken(url, text)
    assert (found.new, found.wrong, found.lines) == (2, 7, 9)
    assert list(wrong) == [1, 4, 5, 6, 7, 8, 9]
    assert "latency_s" in wrong[5]
    assert "format 99" in wrong[6]
    assert "longer than" in wrong[7]


def test_a_compressed_file_that_was_cut_off_keeps_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.jsonl.gz"
    text = exported(filled(tmp_path / "a.db", ROWS))
    with json_lines.opened(path, "wb") as file:
        file.write(text)
    assert path.read_bytes() != text
    with json_lines.opened(path, "rb") as file:
        assert file.read() == text
    path.write_bytes(path.read_bytes()[:-8])  # the checksum at its end
    with (
        contextlib.closing(RecordStore(f"sqlite:///{tmp_path}/b.db")) as store,
        json_lines.opened(path, "rb") as file,
        pytest.raises(RequestError, match="ends too early"),
    ):
        json_lines.read(file, store, lambda *_: None)
    assert sorted(exported(f"sqlite:///{tmp_path}/b.db").splitlines()) == sorted(text.splitlines())


def test_many_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [measured(n, 1e-3) for n in range(1_200)]
    url = filled(tmp_path / "a.db", rows)
    assert exported(url).count(b"\n") == len(rows)


@pytest.mark.parametrize(
    ("line", "tuner"),
    [
        (b'{"input": [], "config": {}, "result": [], "version": 0.2}', "AutoTVM"),
        (b'{"version": 0.2, "result": [], "config": {}, "input": []}', "AutoTVM"),
        (b'{"v": "v0.6", "i": [], "r": []}', "Ansor"),
        (b'{"format": 1, "origin": "lab"}', ""),
        (b'["i", "r", "v"]', ""),
        (b"[" * 100_000, ""),
        (b"", ""),
    ],
)
def test_lines_of_other_tuners_are_told_apart_in_any_order_of_their_fields(line: bytes, tuner: str) -> None:
    assert json_lines.tuner_of(line) == tuner
