"""A record store as lines of JSON: one measurement a line, with all its fields.

A line identifies its measurement by content, as the store does. A file may therefore be imported twice, into any store,
without duplicates; two stores that import each other's files have the same content. An imported measurement is a hint:
its schedule is measured on this machine before it counts.
"""

import gzip
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from msgspec import Struct, field

from autosched.errors import RequestError
from autosched.model import Program, Record
from autosched.recordstore.keys import Environment, measurement_id
from autosched.recordstore.rows import Measurement, Origin, SourceJob, Tag, Workload
from autosched.recordstore.store import RecordStore

FORMAT = 1
LINE_BYTES_MAX = 2_000_000
"""Maximum bytes of a line."""
BATCH = 500
"""Maximum measurements of one transaction."""
GZIP = ".gz"


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement."""

    format: int = FORMAT
    origin: str
    """Name of the database in which it was measured."""
    host: str = ""
    """Host of that database, or name of the file that it was imported from before."""
    job: SourceJob
    workload: Workload
    environment: Environment
    record: Record
    program: Program | None = None
    """Program of the workload; on the first line of each workload."""


class Taken(Struct):
    """Counts of the lines of a file."""

    lines: int = 0
    new: int = 0
    """Number of measurements that the store did not have."""
    wrong: int = 0
    """Number of invalid lines, which were skipped."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of valid lines without use here, by reason; for logs of other tuners."""
    seeded: int = 0
    """Number of known workloads that got schedules from such a log."""

    @property
    def known(self) -> int:
        """Number of measurements that the store already had."""
        return self.lines - self.new - self.wrong


_LINE = msgspec.json.Decoder(Line)
Complain = Callable[[int, str], None]
"""Called for an invalid line, with its number, from 1, and the reason."""
Programs = Callable[[Collection[str]], Mapping[str, Program]]
"""Returns the known programs of workloads, by hash."""


@contextmanager
def opened(path: Path, mode: str) -> Iterator[BinaryIO]:
    """Open a file to read ("rb") or write ("wb"), compressed if its name ends with .gz."""
    with path.open(mode) as file:
        if path.suffix != GZIP:
            yield cast(BinaryIO, file)
            return
        with gzip.GzipFile(fileobj=file, mode=mode) as packed:
            yield cast(BinaryIO, packed)


def write(measurements: Iterable[tuple[Origin, Measurement]], programs: Programs, file: BinaryIO) -> int:
    """Write measurements; returns their number."""
    count, told = 0, set[str]()
    for origin, one in measurements:
        name = one.workload.hash
        program = programs((name,)).get(name) if name not in told else None
        told.add(name)
        line = Line(
            origin=origin.name, host=origin.detail, job=one.job, workload=one.workload, environment=one.environment,
            record=one.record, program=program,
        )  # fmt: skip
        file.write(msgspec.json.encode(line) + b"\n")
        count += 1
    return count


def read(file: BinaryIO, store: RecordStore, complain: Complain) -> Taken:
    """Import all lines into a store. An invalid line is reported and skipped.

    Raises StoreUnavailable, and RequestError for a truncated file, of which the complete lines are imported.
    """
    taken = Taken()
    found: defaultdict[Origin, list[Measurement]] = defaultdict(list)
    programs: dict[Workload, Program] = {}
    try:
        for number, text in enumerate(lines(file), 1):
            if not text.strip():
                continue
            taken.lines += 1
            try:
                line = _decoded(text)
            except RequestError as error:
                taken.wrong += 1
                complain(number, str(error))
                continue
            found[Origin(line.origin, True, line.host)].append(_measurement(line))
            if line.program is not None:
                programs[line.workload] = line.program
            if number % BATCH == 0:
                _add(found, programs, store, taken)
    finally:
        _add(found, programs, store, taken)  # the complete lines of a truncated file
    return taken


def tuner_of(line: bytes) -> str:
    """The tuner that wrote a line of a log: "AutoTVM", "Ansor", or "" for none of them."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict):
        return ""
    if {"input", "config", "result"} <= told.keys():
        return "AutoTVM"
    return "Ansor" if {"i", "r", "v"} <= told.keys() else ""


def merge(measurements: Iterable[tuple[Origin, Measurement]], programs: Programs, store: RecordStore) -> Taken:
    """Import the measurements of another store. Raises StoreUnavailable."""
    taken, waiting = Taken(), iter(measurements)
    while batch := list(islice(waiting, BATCH)):
        found: defaultdict[Origin, list[Measurement]] = defaultdict(list)
        for origin, one in batch:
            taken.lines += 1
            found[msgspec.structs.replace(origin, imported=True)].append(one)
        workloads = {one.workload.hash: one.workload for _, one in batch}
        _add(found, {workloads[name]: one for name, one in programs(workloads).items()}, store, taken)
    return taken


def _add(
    found: dict[Origin, list[Measurement]], programs: dict[Workload, Program], store: RecordStore, taken: Taken
) -> None:
    for origin, measurements in found.items():
        disturbed = [one for one in measurements if one.record.disturbed]
        tags = [Tag(one.job.number, one.record.number, one.record.disturbed) for one in disturbed]
        taken.new += store.add(origin, measurements, tags)
    store.add_programs(programs)
    found.clear()
    programs.clear()


def lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, each truncated to the maximum length. Raises RequestError for an unreadable file."""
    try:
        while text := file.readline(LINE_BYTES_MAX + 1):
            yield text
            while len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
                text = file.readline(LINE_BYTES_MAX + 1)
    except (OSError, EOFError, io.UnsupportedOperation) as error:
        raise RequestError(f"the file ends too early, or is damaged: {error}") from None


def _decoded(text: bytes) -> Line:
    """Decode a line. Raises RequestError."""
    if len(text) > LINE_BYTES_MAX:
        raise RequestError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        line = _LINE.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RequestError(f"it is no measurement: {error}") from None
    if line.format > FORMAT:
        raise RequestError(f"it has format {line.format}; this version knows formats up to {FORMAT}")
    return line


def _measurement(line: Line) -> Measurement:
    name = measurement_id(line.origin, line.job.number, line.workload.hash, line.record)
    return Measurement(name, line.job, line.workload, line.environment, line.record)
