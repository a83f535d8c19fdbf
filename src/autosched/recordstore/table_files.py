"""Writes flat tables for notebooks and spreadsheets, as CSV or Parquet, with one measurement a row for a record store.

For transfer to another record store, use `json_lines`.
"""

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from autosched.errors import RequestError
from autosched.records.statistics import interval
from autosched.recordstore.keys import candidate_digest
from autosched.recordstore.rows import Measurement, Origin

COLUMNS: dict[str, type] = {
    "workload": str, "operator": str, "shape": str, "flops": float, "schedule": str, "latency_s": float, "low_s": float,
    "high_s": float, "samples_s": str, "failure": str, "detail": str, "disturbed": str, "purpose": str,
    "measured_at": float, "device": str, "target": str, "threads": int, "compiler": str, "measurement": str,
    "backend": str, "template": str, "code": str, "unit": str, "build_s": float, "profile_s": float, "network": str,
    "model": str, "job": int, "job_name": str, "owner": str, "record": int, "origin": str, "host": str,
    "imported": bool, "candidate": str,
}  # fmt: skip
"""Names and types of the columns. Times and latencies are in seconds, `measured_at` in Unix time; `latency_s` is the
median, `low_s` and `high_s` bound its 95 % confidence interval; `samples_s` is a JSON list; `schedule` is the digest
of `candidate`, which is in base 64."""
BATCH = 5_000
"""Maximum rows written to Parquet at once."""


def row(origin: Origin, one: Measurement) -> dict[str, Any]:
    """The columns of one measurement; None for unknown values."""
    record, where, job = one.record, one.environment, one.job
    low_s, high_s = interval(record.latency_s) if record.latency_s else (None, None)
    return {
        "workload": one.workload.hash, "operator": one.workload.name, "shape": one.workload.shape,
        "flops": one.workload.flops, "schedule": candidate_digest(record.candidate).hex(), "latency_s": record.best_s,
        "low_s": low_s, "high_s": high_s, "samples_s": msgspec.json.encode(record.latency_s).decode(),
        "failure": record.failure.value if record.failure is not None else "", "detail": record.detail,
        "disturbed": record.disturbed, "purpose": record.purpose.value, "measured_at": record.measured_at or None,
        "device": where.device, "target": where.target, "threads": where.threads or None, "compiler": where.compiler,
        "measurement": where.measurement, "backend": where.backend, "template": where.template, "code": record.code,
        "unit": record.unit, "build_s": record.build_s, "profile_s": record.profile_s, "network": job.network,
        "model": job.model, "job": job.number, "job_name": job.name, "owner": job.owner, "record": record.number,
        "origin": origin.name, "host": origin.detail, "imported": origin.imported,
        "candidate": base64.b64encode(record.candidate).decode(),
    }  # fmt: skip


def rows(measurements: Iterable[tuple[Origin, Measurement]]) -> Iterator[dict[str, Any]]:
    """The table of measurements."""
    return (row(origin, one) for origin, one in measurements)


def write_csv(table: Iterable[Mapping[str, Any]], columns: Mapping[str, type], file: BinaryIO) -> int:
    """Write a table with a header, in UTF-8; returns the number of its rows."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    count = 0
    for one in table:
        writer.writerow(one)
        count += 1
    text.flush()
    text.detach()
    return count


def write_parquet(table: Iterable[Mapping[str, Any]], columns: Mapping[str, type], path: Path) -> int:
    """Write a table; returns the number of its rows. Raises RequestError if pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RequestError(
            "Parquet takes pyarrow; install it: pip install 'autosched[parquet]', or name the file .csv"
        ) from None
    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for some in _batches(iter(table)):
            writer.write_table(pyarrow.Table.from_pylist(some, schema))
            count += len(some)
    return count


def _batches(table: Iterator[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    while some := list(islice(table, BATCH)):
        yield some
