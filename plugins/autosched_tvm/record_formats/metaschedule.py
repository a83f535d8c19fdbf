"""MetaSchedule's JSON databases: exports a record store for programs that use TVM alone, and imports them.

A database is a folder of two files. A line of `database_workload.json` is a workload: its structural hash, and its
module. A line of `database_tuning_record.json` is a measurement: the number of its workload, the trace, the latencies
in seconds (null: not measured; 1e10: it failed), the target, and the arguments. Traces are copied byte for byte: our
candidates consist of them.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import tvm
from msgspec import Struct
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched.errors import RequestError
from autosched.model import Failure, Program, Purpose, Record
from autosched.recordstore.json_lines import BATCH, LINE_BYTES_MAX, Complain, Programs, Taken, lines
from autosched.recordstore.keys import Environment, join_target, split_target
from autosched.recordstore.rows import Measurement, Origin, Standing, Workload, judge
from autosched.recordstore.store import RecordStore
from autosched_tvm.compile import workload_program
from autosched_tvm.compile.task_extraction import buffers_of, describe, workload_hash
from autosched_tvm.compile.winograd import workload as stages
from autosched_tvm.record_formats import foreign_record
from autosched_tvm.tvm_types import Expr, IRModule
from autosched_tvm.worker_messages import TEMPLATE

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
FAILED_S = 1e10
"""Latency with which MetaSchedule marks a failure."""
ORIGIN = "metaschedule"
"""Name of the origin of all imported databases: equal measurements in two of them are one."""
LENGTH_BYTES = 8
"""Bytes of the length before a module."""
Measurements = Callable[[], Iterable[tuple[Origin, Measurement]]]
Place = tuple[str, str, int]
"""Device, target and threads, which MetaSchedule does not distinguish within a database."""


class Written(Struct):
    """Numbers of written measurements, and of omitted ones by reason."""

    records: int = 0
    workloads: int = 0
    left: Counter[str] = msgspec.field(default_factory=Counter)


class _Line(Struct, array_like=True):
    workload: int
    record: tuple[msgspec.Raw, ...]


_LINE, _WORKLOAD_LINE = msgspec.json.Decoder(_Line), msgspec.json.Decoder(tuple[str, str])
_SECONDS = msgspec.json.Decoder(tuple[float, ...] | None)
_PARTS = msgspec.json.Decoder(tuple[msgspec.Raw, ...])


# Out ------------------------------------------------------------------------------------------------------------------


def write(measurements: Measurements, programs: Programs, folder: Path) -> Written:
    """Write a database. `measurements` is called twice.

    Measurements that MetaSchedule cannot use are omitted and counted: schedules of other kinds, disturbed measurements,
    workloads without a known program; also candidates that were fast when measured alone, and lost in the finals, since
    MetaSchedule would choose them. Raises RequestError for measurements of several devices or targets, whose latencies
    it would mix.
    """
    best_s = _compared_best(measurements())
    made: dict[str, _Written | str] = {}
    told = Written()
    with (folder / WORKLOADS).open("wb") as workloads, (folder / RECORDS).open("wb") as records:
        for _, one in measurements():
            trace = _trace(one.record.candidate)
            if (reason := _unfit(one, trace, best_s)) != "":
                told.left[reason] += 1
                continue
            name = one.workload.hash
            if (known := made.get(name)) is None:
                known = made[name] = _workload_line(programs((name,)).get(name), name, told.workloads)
                if isinstance(known, _Written):
                    workloads.write(known.line)
                    told.workloads += 1
            if isinstance(known, str):
                told.left[known] += 1
                continue
            target = json.dumps(_target(one), separators=(",", ":")).encode()
            parts = trace, _seconds(one.record), target, known.arguments
            records.write(b"[%d,[%b]]\n" % (known.number, b",".join(parts)))
            told.records += 1
    return told


class _Written(Struct):
    """A workload of the database that is being written."""

    number: int
    line: bytes
    arguments: bytes


def _compared_best(measurements: Iterable[tuple[Origin, Measurement]]) -> dict[str, float]:
    """The least mean latency, in seconds, of the finals, by workload."""
    found: dict[str, float] = {}
    places: Counter[Place] = Counter()
    for _, one in measurements:
        if not _trace(one.record.candidate):
            continue
        if one.environment.target:
            places[one.environment.device, one.environment.target, one.environment.threads] += 1
        if judge(one.record)[0] is Standing.COMPARED and one.record.latency_s:
            mean_s = _mean(one.record.latency_s)
            found[one.workload.hash] = min(mean_s, found.get(one.workload.hash, mean_s))
    if len(places) > 1:
        some = "; ".join(
            f"{device or 'device not known'}, {target}, {threads} threads" for device, target, threads in places
        )
        raise RequestError(
            f"there are schedules of {len(places)} devices or targets, which MetaSchedule would take for one: {some}."
            " Choose one with --device or --target"
        )
    return found


def _unfit(one: Measurement, trace: bytes, best_s: Mapping[str, float]) -> str:
    """Why a measurement is omitted; empty if it is not."""
    stands, _ = judge(one.record)
    if not trace:
        return "no schedules of MetaSchedule" if one.record.candidate else "schedules by rule"
    if one.record.disturbed:
        return "disturbed measurements"
    if stands is Standing.WRONG:
        return "wrong in a whole network"
    alone_s = _mean(one.record.latency_s) if one.record.latency_s and stands is Standing.SEARCHED else math.inf
    return "faster alone than the winner side by side" if alone_s <= best_s.get(one.workload.hash, 0.0) else ""


def _mean(samples_s: Collection[float]) -> float:
    """Mean latency, by which MetaSchedule orders."""
    return sum(samples_s) / len(samples_s)


def _trace(candidate: bytes) -> bytes:
    """The trace of a candidate without its memo; empty for other kinds of schedules."""
    try:
        parts = _PARTS.decode(candidate)
    except msgspec.MsgspecError:
        return b""
    if len(parts) not in (2, 3) or not all(bytes(part).startswith(b"[") for part in parts[:2]):
        return b""
    return b"[%b,%b]" % (parts[0], parts[1])


def _workload_line(program: Program | None, name: str, number: int) -> "_Written | str":
    """A line, or the reason why there is none."""
    if program is None:
        return "workloads whose program is not known"
    try:
        text = workload_program.text_of(program)
        module = workload_program.module_of(text)
    except Exception:  # a program of another version of TVM
        return f"workloads that this TVM cannot read (they are of {program.form})"
    if stages.marked(module) is not None:
        return "convolutions by Winograd's algorithm, which TVM alone cannot build"
    packed = base64.b64encode(len(text).to_bytes(LENGTH_BYTES, "little") + text).decode()
    line = json.dumps([str(int(name, 16)), packed], separators=(",", ":")).encode() + b"\n"
    arguments = [info.as_json() for info in ArgInfo.from_entry_func(module, remove_preproc=True)]
    return _Written(number, line, json.dumps(arguments, default=_plain, separators=(",", ":")).encode())


def _target(one: Measurement) -> Any:
    """The target as it was imported, or from the environment of a daemon's measurement. None if unknown."""
    where = one.environment
    if not where.target:
        return None
    if split_target(one.job.name) == (where.target, where.threads):
        return json.loads(one.job.name)
    return json.loads(join_target(where.target, where.threads))


def _seconds(record: Record) -> bytes:
    if record.failure is not None:
        return b"[%d]" % FAILED_S
    return msgspec.json.encode(record.latency_s) if record.latency_s else b"null"


def _plain(value: Expr) -> Any:
    """Convert TVM's numbers, texts and lists to JSON."""
    return list(value) if isinstance(value, Iterable) else getattr(value, "value", None) or int(value)


# In -------------------------------------------------------------------------------------------------------------------


def read(folder: Path, store: RecordStore, complain: Complain) -> Taken:
    """Import a database into a store. A wrong line is reported and skipped. Raises StoreUnavailable."""
    workloads = dict(_workloads(folder / WORKLOADS, complain))
    taken, seen = Taken(), Counter[bytes]()
    programs: dict[Workload, Program] = {}
    with (folder / RECORDS).open("rb") as file:
        numbered = enumerate(lines(file), 1)
        while batch := list(islice(numbered, BATCH)):
            found: list[Measurement] = []
            for number, text in batch:
                if not (text := text.strip()):
                    continue
                taken.lines += 1
                try:
                    one, program = _measurement(text, workloads, seen)
                except RequestError as error:
                    taken.wrong += 1
                    complain(number, f"{RECORDS}: {error}")
                    continue
                found.append(one)
                programs[one.workload] = program
            taken.new += store.add(Origin(ORIGIN, True, folder.name), found)
    store.add_programs(programs)
    return taken


def _workloads(path: Path, complain: Complain) -> Iterator[tuple[int, tuple[Workload, Program]]]:
    """Workloads that this version of TVM can read, by number."""
    with path.open("rb") as file:
        for number, text in enumerate(lines(file)):
            try:
                yield number, _workload(text)
            except RequestError as error:
                complain(number + 1, f"{path.name}: {error}")


def module_of(line: bytes) -> IRModule:
    """The module in a line of a workload. Raises any exception of decoders and TVM for other lines."""
    _, packed = _WORKLOAD_LINE.decode(line)
    return workload_program.module_of(base64.b64decode(packed, validate=True)[LENGTH_BYTES:])


def _workload(text: bytes) -> tuple[Workload, Program]:
    """Parse a workload. Raises RequestError."""
    try:
        module = module_of(text)
        name = workload_hash(module)
        buffers = buffers_of(module)
        named = str((module["main"].attrs or {}).get("global_symbol", "main"))
        flops = float(tvm.s_tir.analysis.estimate_tir_flops(module))
        shape = describe(named, buffers) if named != "main" else _described(buffers)
    except Exception as error:  # TVM may raise any exception for a module of another version
        why = " ".join(str(error).split())[:200]
        raise RequestError(f"it is no workload of TVM {tvm.__version__}: {why or type(error).__name__}") from None
    return Workload(name, named, shape, flops), workload_program.of_module(module)


def _described(buffers: list[tuple[int, ...]]) -> str:
    """Description of an operator without a name."""
    *inputs, output = ("x".join(map(str, shape)) or "scalar" for shape in buffers)
    return f"operator {' and '.join(inputs)} -> {output}" if inputs else f"operator {output}"


def _measurement(
    text: bytes, workloads: Mapping[int, tuple[Workload, Program]], seen: Counter[bytes]
) -> tuple[Measurement, Program]:
    """Convert a record. Raises RequestError."""
    if len(text) > LINE_BYTES_MAX:
        raise RequestError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        line = _LINE.decode(text)
        trace, *more = line.record
        samples_s = _SECONDS.decode(more[0]) if more else None
        target = bytes(more[1]).decode() if len(more) > 1 and bytes(more[1]) != b"null" else ""
        json.loads(bytes(trace))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RequestError(f"it is no record of MetaSchedule: {error}") from None
    if not _trace(bytes(trace)):
        raise RequestError("it is no record of MetaSchedule: it has no trace")
    if samples_s is not None and not all(math.isfinite(one_s) and one_s > 0 for one_s in samples_s):
        raise RequestError("its latencies are no positive numbers of seconds")
    if (known := workloads.get(line.workload)) is None:
        raise RequestError(f"its workload, line {line.workload + 1} of {WORKLOADS}, is missing or wrong")
    seen[text] += 1
    failed = samples_s is not None and (not samples_s or max(samples_s) >= FAILED_S)
    record = Record(
        task=0, number=seen[text], candidate=bytes(trace), latency_s=() if failed else samples_s or (),
        failure=Failure.RUN_ERROR if failed else None, purpose=Purpose.TRIAL,
    )  # fmt: skip
    where, threads = split_target(target)
    environment = Environment(where, threads, template=TEMPLATE)
    workload, program = known
    return foreign_record.measurement(ORIGIN, "MetaSchedule", target, workload, environment, record), program
