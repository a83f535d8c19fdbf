"""Imports networks, each in a separate process, and stores their tasks in a record store."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import msgspec
from msgspec import Struct
from sqlalchemy.engine import URL

from autosched.api import tvm_programs
from autosched.api.whole_models import whole
from autosched.errors import RequestError
from autosched.experiments.models import Found
from autosched.model import Program
from autosched.recordstore.collected import Collected, Collector, Scope
from autosched.recordstore.rows import Workload
from autosched.task_bundle import Change, Taken

Shapes = Mapping[str, tuple[int, ...]]
TIMEOUT_S = 1_800.0
"""Maximum seconds of the import of a network with all its sizes."""
ASK_S = 120.0
"""Maximum seconds to get the importer's versions."""
SIZES_MAX = 64
"""Maximum number of sizes of a network."""


class Importer(Struct, frozen=True):
    """The importer of networks on this machine, with its target, backend and layout."""

    asked_target: str
    """As written by the user."""
    backend: str
    scope: Scope
    versions: str


class Outcome(Struct, frozen=True):
    """Result of collecting one network."""

    sizes: int
    """Number of sizes collected now."""
    tasks: int
    """Number of tasks in all of them."""
    distinct: int
    """Number of different ones."""
    new: int
    """Number of tasks that no network had before."""
    notes: tuple[str, ...]
    """Operators that keep their size, and impossible sizes, in words."""


def read_changes(words: Iterable[str]) -> list[Change]:
    """All sizes of mutations such as "batch=1,4" and "resolution=0.75,1": their product, the file's own size first.

    Raises RequestError for an invalid word, and for too many sizes.
    """
    values: dict[str, list[str]] = {}
    for word in words:
        name, _, numbers = word.partition("=")
        if name not in Change.__struct_fields__ or not numbers:
            raise RequestError(
                f"--mutate {word} is not understood; write batch=1,4,16 or resolution=0.75,1,1.25 (factors of height"
                " and width)"
            )
        values.setdefault(name, []).extend(numbers.split(","))
    combinations = product(*([f"{name}={number}" for number in numbers] for name, numbers in values.items()))
    found = dict.fromkeys([Change(), *(Change.read(" ".join(words)) for words in combinations)])
    if len(found) > SIZES_MAX:
        raise RequestError(f"these mutations are {len(found)} sizes of each network; {SIZES_MAX} can be handled")
    return list(found)


async def importer(target: str, backend: str) -> Importer:
    """The importer on this machine. Raises RequestError for an unknown target or backend."""
    words = ["--target", target, "--backend", backend]
    told = await tvm_programs.ask(tvm_programs.TASK_COLLECTION, words, timeout_s=ASK_S)
    return Importer(target, backend, Scope(told["target"], told["layout"]), told["importer"])


async def collect(
    model: Found, changes: Sequence[Change], by: Importer, store: str | URL, shapes: Shapes | None = None
) -> Outcome:
    """Collect a network in those sizes in which it was not collected yet. `shapes`: of inputs, instead of the model's
    own.

    Raises ModelRejected, RequestError and StoreUnavailable.
    """
    own = _shape_words(shapes or {})
    with contextlib.closing(Collector(store)) as collector:
        there = collector.changes(model.sha256, by.scope, by.versions)
        missing = [change for change in changes if _size(own, change) not in there]
        taken = await _taken(model, missing, by, shapes or model.shapes) if missing else []
        new = sum(collector.add_network(*_row(model, one, by, _size(own, one.change))) for one in taken)
    found = [task.workload for one in taken for task in one.tasks]
    return Outcome(
        sizes=sum(bool(one.tasks) for one in taken), tasks=len(found), distinct=len(set(found)), new=new,
        notes=tuple(note for one in taken for note in _notes(one)),
    )  # fmt: skip


def _shape_words(shapes: Shapes) -> list[str]:
    return [f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items()]


def _size(shapes: Sequence[str], change: Change) -> str:
    """The size of a network in words; empty for that of its file."""
    return ", ".join([*shapes, *([change.words] if change.words else [])])


async def _taken(model: Found, changes: Sequence[Change], by: Importer, shapes: Shapes) -> list[Taken]:
    words = ["--target", by.asked_target, "--backend", by.backend]
    for shape in _shape_words(shapes):
        words += ["--shape", shape]
    for change in changes:
        words.append(f"--change={change.text}")
    with tempfile.TemporaryDirectory(prefix="autosched-collect-") as folder:
        out = Path(folder) / "taken"
        async with whole(model.path) as path:
            words = [str(path), str(out), *words]
            await tvm_programs.ask(tvm_programs.TASK_COLLECTION, words, timeout_s=TIMEOUT_S)
        return msgspec.msgpack.decode(out.read_bytes(), type=list[Taken])


def _row(model: Found, one: Taken, by: Importer, size: str) -> tuple[Collected, dict[Workload, Program]]:
    workloads = {Workload(task.workload, task.name, task.shape, task.flops): task for task in one.tasks}
    notes = (*((one.reason,) if one.reason else ()), *one.kept)
    uses = {workload: task.weight for workload, task in workloads.items()}
    now = datetime.now(UTC).timestamp()
    row = Collected(model.sha256, model.label, size, by.scope, by.versions, notes, now, uses)
    return row, {workload: task.program for workload, task in workloads.items()}


def _notes(one: Taken) -> Iterator[str]:
    size = one.change.words or "as it is"
    if one.reason:
        yield f"not with {size}: {one.reason}"
    if one.kept:
        yield f"{size}: unchanged from here on: {'; '.join(dict.fromkeys(one.kept))}"
