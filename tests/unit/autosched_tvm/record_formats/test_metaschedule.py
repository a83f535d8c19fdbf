"""Databases of MetaSchedule are imported into a record store and exported from it."""

import contextlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")

import msgspec
import tvm
from msgspec.structs import replace
from tvm import te
from tvm.s_tir import meta_schedule as ms

from autosched.errors import RequestError
from autosched.model import Failure, Program, Purpose
from autosched.recordstore.json_lines import Taken
from autosched.recordstore.keys import Environment
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Measurement, Workload
from autosched.recordstore.store import RecordStore
from autosched_tvm.compile import workload_program
from autosched_tvm.compile.task_extraction import hash_of
from autosched_tvm.record_formats import metaschedule as files
from samples_of_store import LAB, measured

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
HERE = Environment('{"kind":"llvm","mcpu":"x86-64-v3"}', 2, "tvm", "tvm 1", "ansor 1", "trace 1", "AMD EPYC")


def multiply(n: int) -> Any:
    left, right = te.placeholder((n, n), name="left"), te.placeholder((n, n), name="right")
    k = te.reduce_axis((0, n), name="k")
    out = te.compute((n, n), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="out")
    return tvm.IRModule({"main": te.create_prim_func([left, right, out])})


def candidates(module: Any, count: int) -> list[Any]:
    """Returns random candidates of MetaSchedule's own search."""
    context = ms.TuneContext(
        mod=module, target=tvm.target.Target(TARGET), space_generator="post-order-apply",
        search_strategy="replay-trace", rand_state=1, num_threads=1,
    )  # fmt: skip
    strategy = context.search_strategy
    strategy.pre_tuning(count, count, context.generate_design_space(), ms.database.MemoryDatabase(), None)
    return list(strategy.generate_measure_candidates())


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as TVM writes it: two workloads, with all kinds of results."""
    folder = tmp_path_factory.mktemp("database")
    made = ms.database.JSONDatabase(work_dir=str(folder))
    target = tvm.target.Target(TARGET)
    for size in (32, 64):
        workload = made.commit_workload(multiply(size))
        first, second, *_ = candidates(multiply(size), 3)
        for candidate, seconds in ((first, [1e-4, 1e-4 / 3]), (second, [1e10]), (second, None), (second, [2e-4])):
            record = ms.database.TuningRecord(candidate.sch.trace, workload, seconds, target, candidate.args_info)
            made.commit_tuning_record(record)
    return folder


def taken_in(folder: Path, store: Path) -> tuple[Taken, dict[int, str]]:
    told: dict[int, str] = {}
    with contextlib.closing(RecordStore(f"sqlite:///{store}")) as opened:
        return files.read(folder, opened, told.__setitem__), told


def written(store: Path, folder: Path) -> files.Written:
    folder.mkdir()
    with contextlib.closing(Lookup(f"sqlite:///{store}")) as lookup:
        return files.write(lookup.everything, lookup.programs, folder)


def records_of(folder: Path) -> list[tuple[bytes, ...]]:
    lines = (folder / files.RECORDS).read_bytes().splitlines()
    parts = [msgspec.json.decode(line, type=tuple[int, tuple[msgspec.Raw, ...]])[1] for line in lines]
    return [tuple(map(bytes, some)) for some in parts]


def test_a_database_is_unchanged_by_import_and_export(database: Path, tmp_path: Path) -> None:
    taken, wrong = taken_in(database, tmp_path / "records.db")
    assert (taken.lines, taken.new, wrong) == (8, 8, {})
    assert taken_in(database, tmp_path / "records.db")[0].known == 8
    told = written(tmp_path / "records.db", tmp_path / "back")
    assert (told.records, told.workloads, told.left) == (8, 2, {})
    before, after = records_of(database), records_of(tmp_path / "back")
    for part in (0, 2, 3):  # trace, target and arguments, byte for byte
        assert sorted(one[part] for one in after) == sorted(one[part] for one in before)
    seconds = [[None if one[1] == b"null" else json.loads(one[1]) for one in some] for some in (before, after)]
    assert sorted(map(str, seconds[0])) == sorted(map(str, seconds[1]))
    workloads = [(one / files.WORKLOADS).read_text().splitlines() for one in (database, tmp_path / "back")]
    assert {json.loads(line)[0] for line in workloads[0]} == {json.loads(line)[0] for line in workloads[1]}


def test_tvm_reads_the_written_database(database: Path, tmp_path: Path) -> None:
    taken_in(database, tmp_path / "records.db")
    written(tmp_path / "records.db", tmp_path / "back")
    read = ms.database.JSONDatabase(work_dir=str(tmp_path / "back"))
    found = read.query_tuning_record(multiply(64), tvm.target.Target(TARGET), "main")
    assert found is not None
    assert [float(one) for one in found.run_secs] == [1e-4, 1e-4 / 3]
    assert len(read) == 8


def test_imported_records_are_hints_for_all_backends(database: Path, tmp_path: Path) -> None:
    taken_in(database, tmp_path / "records.db")
    with contextlib.closing(Lookup(f"sqlite:///{tmp_path}/records.db")) as lookup:
        name = hash_of(multiply(64))
        hints = lookup.hints(name, replace(HERE, backend="autotvm 1"), 9)
        assert [one.best_s for one in hints] == [pytest.approx(2e-4 / 3), 2e-4]
        assert lookup.best(name, HERE) == []
        assert all(one.origin.imported for one in hints)
        failed = [one for _, one in lookup.everything() if one.record.failure is not None]
        assert {one.record.failure for one in failed} == {Failure.RUN_ERROR}
        (told, *_) = [one.workload for _, one in lookup.everything() if one.workload.hash == name]
        assert told == Workload(name, "main", "operator 64x64 and 64x64 -> 64x64", 2 * 64**3)


def test_malformed_lines_are_reported_and_left_out(database: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    first, second = (database / files.WORKLOADS).read_bytes().splitlines()
    (broken / files.WORKLOADS).write_bytes(first + b'\n["1","' + second[30:90] + b'"]\n')
    good, *_, lost = (database / files.RECORDS).read_bytes().splitlines()
    trace = good[: good.rindex(b"]]],[") + 3]
    lines = [
        good, b"no", b"[0,[]]", b"[0,[7]]", b'[0,["x","y"]]', lost, b"[9,[[[],[]]]]", b"", b"[" * 100_000,
        trace + b",[-1.0]]]", trace + b',["x"]]]', trace + b"]]", b" " * (files.LINE_BYTES_MAX + 9), good,
    ]  # fmt: skip
    (broken / files.RECORDS).write_bytes(b"\n".join(lines))
    taken, told = taken_in(broken, tmp_path / "records.db")
    assert taken.new == 3  # the first, the last, which repeats the same measurement, and one without a result
    assert {2, 3, 4, 5, 6, 7, 9, 10, 11} <= told.keys()
    assert "workload" in told[6]
    with contextlib.closing(Lookup(f"sqlite:///{tmp_path}/records.db")) as lookup:
        assert len(list(lookup.everything())) == 3


# What daemons measured ------------------------------------------------------------------------------------------------


def own(
    trial: int, latency_s: float | None, candidate: bytes, purpose: Purpose = Purpose.TRIAL, **more: Any
) -> Measurement:
    module = multiply(64)
    one = measured(
        trial, latency_s, candidate=candidate.decode(), purpose=purpose, workload=Workload(hash_of(module)),
        where=more.pop("where", HERE), **more,
    )  # fmt: skip
    return one if latency_s else replace(one, record=replace(one.record, failure=Failure.RUN_CRASH))


def stored(path: Path, rows: list[Measurement], programs: Mapping[Workload, Program] | None = None) -> None:
    module = multiply(64)
    with contextlib.closing(RecordStore(f"sqlite:///{path}")) as store:
        store.add(LAB, rows)
        store.add_programs(
            {Workload(hash_of(module)): workload_program.of_module(module)} if programs is None else programs
        )


def traces(count: int, memo: str = "") -> list[bytes]:
    return [
        json.dumps([*one.sch.trace.as_json(), *([memo] if memo else [])], default=lambda number: number.value).encode()
        for one in candidates(multiply(64), count)
    ]


def test_only_records_that_tvm_can_use_are_written(tmp_path: Path) -> None:
    one, other, third = traces(3, memo="of a search")
    rows = [
        own(0, 1e-3, one), own(1, 2e-3, other), own(2, None, third), own(3, 5e-4, one, disturbed="load"),
        own(4, 1e-3, b"{}"), own(5, 1e-3, other, Purpose.NETWORK),
    ]  # fmt: skip
    stored(tmp_path / "records.db", rows)
    told = written(tmp_path / "records.db", tmp_path / "out")
    assert (told.records, told.workloads) == (3, 1)
    assert told.left == {
        "disturbed measurements": 1, "no schedules of MetaSchedule": 1, "wrong in a whole network": 1,
    }  # fmt: skip
    read = ms.database.JSONDatabase(work_dir=str(tmp_path / "out"))
    found = read.query_tuning_record(multiply(64), tvm.target.Target(TARGET), "main")
    assert float(found.run_secs[0]) == 1e-3
    assert dict(found.target.attrs)["mcpu"] == "x86-64-v3"
    assert int(found.target.attrs["num-cores"]) == 2
    assert all(b"of a search" not in record[0] for record in records_of(tmp_path / "out"))


def test_the_winner_of_the_finals_stays_the_best(tmp_path: Path) -> None:
    winner, lucky, slow = traces(3)
    rows = [
        own(0, 9e-4, lucky), own(1, 8e-4, winner), own(2, 5e-3, slow), own(3, 1e-3, winner, Purpose.FINAL),
        own(4, 1.2e-3, lucky, Purpose.FINAL),
    ]  # fmt: skip
    stored(tmp_path / "records.db", rows)
    told = written(tmp_path / "records.db", tmp_path / "out")
    assert told.left == {"faster alone than the winner side by side": 2}
    read = ms.database.JSONDatabase(work_dir=str(tmp_path / "out"))
    found = read.query_tuning_record(multiply(64), tvm.target.Target(TARGET), "main")
    assert float(found.run_secs[0]) == 1e-3
    assert told.records == 3


def test_devices_are_not_mixed(tmp_path: Path) -> None:
    one, other = traces(2)
    ryzen = replace(HERE, device="AMD Ryzen")
    stored(tmp_path / "records.db", [own(0, 1e-3, one), own(1, 1e-3, other, where=ryzen)])
    with pytest.raises(RequestError, match=r"2 devices or targets.*--device"):
        written(tmp_path / "records.db", tmp_path / "out")


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "workloads whose program is not known"),
        ({"": Program("tvm 0.18", zlib.compress(b"{}"))}, "workloads that this TVM cannot read (they are of tvm 0.18)"),
        ({"": Program("tvm 0.27", b"damaged")}, "workloads that this TVM cannot read (they are of tvm 0.27)"),
    ],
)
def test_workloads_that_cannot_be_written_are_counted(
    tmp_path: Path, programs: dict[str, Program], reason: str
) -> None:
    (one,) = traces(1)
    stored(
        tmp_path / "records.db", [own(0, 1e-3, one)], {Workload(hash_of(multiply(64))): p for p in programs.values()}
    )
    told = written(tmp_path / "records.db", tmp_path / "out")
    assert (told.records, told.left) == (0, {reason: 1})
