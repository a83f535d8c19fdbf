"""Runs an author's methods in a process that may crash, hang and be killed: ``python -m autosched.simple.child_process
FD``.

The order comes on standard input; answers go to the file descriptor FD, so that output of the author's code only
reaches the client's log.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from autosched import machine
from autosched.errors import AutoschedError, misfit
from autosched.model import CODE_DIGEST_PATTERN
from autosched.process.parent_death_signal import end_with_parent
from autosched.process.pipe_messages import line
from autosched.simple import CandidateFailed, Choice, Job, Run, SimpleBackend, Space

DEBUG, STOP = "AUTOSCHED_DEBUG", "stop"
"""Environment variable with which orders run in the client's process, for debuggers; with the value STOP, exceptions of
the author's code are not caught, so that the debugger stops there."""
CRASHED = "crash"
"""Code of the answer of a child that cannot continue."""


class Item(Struct, frozen=True):
    """One choice, and the folder in which it is built."""

    space: Space
    choice: Choice
    folder: str


class Order(Struct, frozen=True, kw_only=True):
    """Work of a child process."""

    backend: str
    """MODULE:CLASS"""
    method: str
    """spaces, build, measure or publish"""
    name: str
    model: str
    options: Raw
    target: str
    cores: tuple[int, ...]
    items: tuple[Item, ...] = ()
    outdir: str = ""


class Answer(Struct, frozen=True, omit_defaults=True):
    """Result of one item. The first answer reports that the author's module is imported."""

    spaces: tuple[Space, ...] = ()
    run: Run = Run(())
    digest: str = ""
    """Result of `SimpleBackend.code` for a build."""
    error: str = ""
    failure: str = ""
    """Value of a Failure, if the author named one."""
    code: str = ""
    """Code of an AutoschedError, if the author raised one."""


def entry_of(backend: SimpleBackend) -> str:
    """Import path of the author's class, which must be at the top level of a module."""
    return f"{type(backend).__module__}:{type(backend).__qualname__}"


def code_of(kind: type) -> str:
    """A hash of the class' Python file or, in a package, of all files beside and below it."""
    module = sys.modules[kind.__module__]
    file = Path(getattr(module, "__file__", None) or "")
    files = sorted(file.parent.rglob("*.py")) if module.__package__ else [file]
    found = [(str(one.relative_to(file.parent)), one.read_bytes()) for one in files if one.is_file()]
    return hashlib.sha256(msgspec.msgpack.encode(found)).hexdigest()


def load(entry: str) -> SimpleBackend:
    """Load the backend, in the child."""
    module, _, name = entry.partition(":")
    backend: SimpleBackend = getattr(import_module(module), name)()
    return backend


def answers(order: Order) -> Iterator[Answer]:
    """Import the module, report that, and process the order."""
    backend = load(order.backend)
    options = msgspec.json.decode(order.options, type=backend.Options)
    job = Job(name=order.name, model=Path(order.model), options=options, target=order.target, cores=order.cores)
    yield Answer()
    match order.method:
        case "spaces":
            yield _tried(lambda: Answer(spaces=_spaces(backend.spaces(job))))
        case "publish":
            best = [(item.space, item.choice, Path(item.folder)) for item in order.items]
            yield _tried(lambda: _publish(backend, job, best, Path(order.outdir)))
        case _:
            for item in order.items:
                yield _tried(partial(_one, backend, order.method, job, item))


def _one(backend: SimpleBackend, method: str, job: Job, item: Item) -> Answer:
    if method == "measure":
        return Answer(run=_run(backend.measure(job, item.space, dict(item.choice), Path(item.folder))))
    Path(item.folder).mkdir(parents=True, exist_ok=True)
    backend.build(job, item.space, dict(item.choice), Path(item.folder))
    return Answer(digest=_digest(backend.code(job, item.space, dict(item.choice), Path(item.folder))))


def _spaces(found: object) -> tuple[Space, ...]:
    """Convert the result of `spaces`, with any sequence as values. Raises CandidateFailed for other results."""
    given = list(found) if isinstance(found, Iterable) else [None]
    spaces = [one for one in given if isinstance(one, Space)]
    if len(spaces) < len(given):
        raise CandidateFailed(f"spaces() must return [Space(...), ...], it returned {called(found)}")
    return tuple(map(_space, spaces))


def _space(found: Space) -> Space:
    knobs = {}
    for knob, values in found.knobs.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise CandidateFailed(
                f"spaces() must give a knob the values that it may have, (1, 2, 4); {knob!r} of {found.name!r} has"
                f" {called(values)}"
            )
        knobs[knob] = tuple(values)
    try:
        return msgspec.convert({**msgspec.structs.asdict(found), "knobs": knobs}, Space)
    except msgspec.ValidationError as error:
        raise CandidateFailed(f"spaces() returned a Space that cannot be used: {misfit(error)}") from None


def _run(found: object) -> Run:
    """Convert the result of `measure` to numbers. Raises CandidateFailed for other results."""
    wanted = "measure() must return Run((seconds, ...), (output, ...))"
    if not isinstance(found, Run):
        raise CandidateFailed(f"{wanted}, it returned {called(found)}")
    try:
        return Run(tuple(map(float, found.latency_s)), tuple(map(float, found.output)))
    except (TypeError, ValueError):
        told = f"Run({called(found.latency_s)}, {called(found.output)})"
        raise CandidateFailed(f"{wanted}, it returned {told}") from None


def _digest(found: object) -> str:
    """Check the result of `code`. Raises CandidateFailed for other results."""
    if not isinstance(found, str) or not re.fullmatch(CODE_DIGEST_PATTERN, found):
        raise CandidateFailed(
            "code() must return at most 64 hexadecimal digits, as code_name(content) gives them, or"
            f' nothing (""); it returned {repr(found)[:80] if isinstance(found, str) else called(found)}'
        )
    return found


def called(found: object) -> str:
    """Short description of a returned object."""
    if found is None:
        return "nothing"
    kind = type(found).__name__
    parts = dict.fromkeys(type(one).__name__ for one in found) if isinstance(found, list | tuple) else ()
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}{' of ' if parts else ''}{' and '.join(parts)}"


def _publish(backend: SimpleBackend, job: Job, best: list[tuple[Space, Choice, Path]], outdir: Path) -> Answer:
    backend.publish(job, best, outdir)
    return Answer()


def _tried(work: Callable[[], Answer]) -> Answer:
    try:
        return work()
    except CandidateFailed as error:
        return Answer(error=str(error) or "no reason was given", failure=error.failure or "")
    except AutoschedError as error:
        return Answer(error=str(error), code=error.code)
    except Exception as error:  # boundary to the author's code
        if os.environ.get(DEBUG) == STOP:
            raise
        return _raised(error)


def _raised(error: Exception, code: str = "") -> Answer:
    traceback.print_exception(error)
    return Answer(error=f"{type(error).__name__}: {error}{_where(error)}", code=code)


def _where(error: BaseException) -> str:
    """Position of an exception in the author's code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/autosched/simple/" not in frame.filename and "importlib" not in frame.filename
    ]
    return f" (at {Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""


def main() -> None:
    """Process one order."""
    end_with_parent()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    machine.pin(set(order.cores) & os.sched_getaffinity(0) or order.cores)
    # Left open: it ends when this process has, and not while it is ending, when its exit code is not known yet.
    out = open(int(sys.argv[1]), "wb", buffering=0, closefd=False)  # noqa: SIM115
    try:
        for answer in answers(order):
            out.write(line(answer))
    except Exception as error:  # an error of the author's module, or an answer that cannot be sent
        out.write(line(_raised(error, CRASHED)))


if __name__ == "__main__":
    main()
