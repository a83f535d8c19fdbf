"""Instance files: tuning job shops with known bounds, to compare schedulers on.

Each job is tied to one host and repeats build on its host, profile on any device, update on its host. Hosts and devices
run one step at a time. The 26 instances of the package were solved to within 2 % by a constraint solver.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from autosched.errors import RequestError
from autosched.model import Name, Seconds

Iteration = tuple[Seconds, Seconds, Seconds]
"""Seconds of build, profile and update."""
Units = Annotated[int, Meta(ge=1, le=1_000)]
Positive = Annotated[float, Meta(gt=0, le=1e12)]

STANDARD = "instances.json"


class InstanceJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of one task."""

    host: Annotated[int, Meta(ge=0)]
    """Host of its builds and updates; counted from 0."""
    arrival_s: Seconds = 0.0
    iterations: Annotated[tuple[Iteration, ...], Meta(min_length=1)]


class Instance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A load, with the known bounds of its best schedule."""

    name: Name
    hosts: Units
    devices: Units
    lower_bound_s: Positive | None = None
    """Lower bound by simple arithmetic."""
    best_known_s: Positive | None = None
    """The shortest known makespan."""
    proven_bound_s: Positive | None = None
    """Lower bound by a solver."""
    proven: str = ""
    """The solver's status of that bound."""
    jobs: Annotated[tuple[InstanceJob, ...], Meta(min_length=1)]


class _File(Struct, frozen=True):
    instances: Annotated[tuple[Instance, ...], Meta(min_length=1)]
    about: str = ""


S = TypeVar("S", bound=Struct)


def standard() -> tuple[Instance, ...]:
    """The instances of the package."""
    return parse((resources.files(__package__) / STANDARD).read_text(encoding="utf-8"), STANDARD)


def read(path: Path) -> tuple[Instance, ...]:
    """The instances of a file. Raises RequestError with file, instance and job."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror}); check the name of the instance file") from None
    except UnicodeDecodeError:
        raise RequestError(f"{path} is no text; an instance file is JSON in UTF-8") from None


def write(path: Path, instances: Sequence[Instance], about: str = "") -> None:
    """Write a file for `read`."""
    path.write_bytes(msgspec.json.encode({"about": about, "instances": list(instances)}) + b"\n")


def parse(text: str, where: str) -> tuple[Instance, ...]:
    """Parse instances. Raises RequestError; `where` names the text in its message."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where} is no JSON ({error})") from None
    if not isinstance(raw, Mapping) or not isinstance(listed := raw.get("instances"), list) or not listed:
        raise RequestError(
            f'{where} holds no instances: it must read {{"instances": [{{"name": ..., "jobs": [...]}}]}}'
        )
    _check_spelling(raw, _File, where)
    found = tuple(_instance(one, number, where) for number, one in enumerate(listed))
    names = [instance.name for instance in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"{where}: two instances are named {twice!r}; give each its own name")
    return found


def _instance(raw: Any, number: int, where: str) -> Instance:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    place = f"{where}: instance {name!r}" if isinstance(name, str) and name else f"{where}: instance {number}"
    if isinstance(raw, Mapping):
        _check_spelling(raw, Instance, place)
    try:
        instance = msgspec.convert(raw, Instance)
    except msgspec.ValidationError as error:
        raise RequestError(f"{place}{_explained(str(error))}") from None
    for index, job in enumerate(instance.jobs):
        if job.host >= instance.hosts:
            hosts = "there is host 0 only" if instance.hosts == 1 else f"hosts count from 0 to {instance.hosts - 1}"
            raise RequestError(f"{place}, job {index}: it is on host {job.host}, but {hosts}")
        if not any(any(iteration) for iteration in job.iterations):
            raise RequestError(f"{place}, job {index}: all its steps take 0 s; give it some work")
    return instance


def _check_spelling(raw: Mapping[str, Any], kind: type[S], place: str) -> None:
    """Raise for a field that looks like a misspelt one; other unknown fields are notes."""
    ours = kind.__struct_fields__
    for field in raw:
        if field not in ours and (near := difflib.get_close_matches(field, ours, 1, 0.8)):
            raise RequestError(f"{place} has an unknown field {field!r}; did you mean {near[0]!r}?")


def _explained(message: str) -> str:
    """An error of msgspec with the place first: ", job 3: Expected `float` >= 0.0 in iterations[2][0]"."""
    what, _, path = message.partition(" - at `$")
    match = re.match(r"\.jobs\[(\d+)\]", path)
    job, rest = (f", job {match[1]}", path[match.end() :]) if match else ("", path)
    field = rest.rstrip("`").lstrip(".")
    return f"{job}: {what}" + (f" in {field}" if field else "")
