"""Naming several jobs at once: `12`, `12-15`, `12,14`, `last`, `all`, `@name`."""

import re
from collections.abc import Callable, Iterable, Sequence

from autosched.errors import NotFound, RequestError
from autosched.protocol import JobView

_RANGE_MAX = 10_000


def select(
    words: Iterable[str], known: Callable[[], Sequence[int]], named: Callable[[], Sequence[JobView]] = tuple
) -> list[int]:
    """Job ids in the order in which they were named, each once. `known` is asked for `last`, `all` and ranges only,
    `named` for `@name` only, which is every job of that name among them."""
    chosen: dict[int, None] = {}
    for word in (part for text in words for part in text.split(",")):
        for job in _named(word.strip(), named()) if word.strip().startswith("@") else _ids(word.strip(), known):
            chosen[job] = None
    return list(chosen)


def up_to(newest: Sequence[JobView]) -> Sequence[int]:
    """All jobs there are, given the newest: ids are counters without holes."""
    return range(1, newest[-1].job + 1) if newest else ()


def select_one(word: str, known: Callable[[], Sequence[int]], named: Callable[[], Sequence[JobView]] = tuple) -> int:
    """The one job that `word` names; a RequestError when it names several. Of a name it is the latest."""
    jobs = select([word], known, named)
    if word.startswith("@"):
        return jobs[-1]
    if len(jobs) != 1:
        raise RequestError(f"{word!r} names {len(jobs)} jobs, and this command takes one. Name one, for example: last")
    return jobs[0]


def _named(word: str, there: Sequence[JobView]) -> list[int]:
    if not (jobs := [job.job for job in there if job.name == word[1:]]):
        raise NotFound(f"no job is named {word[1:]!r}. See which there are: autosched jobs")
    return jobs


def _ids(word: str, known: Callable[[], Sequence[int]]) -> Iterable[int]:
    if word in ("last", "all"):
        if not (jobs := known()):
            raise NotFound("there are no jobs yet. Submit one: autosched submit MODEL.onnx")
        return jobs if word == "all" else jobs[-1:]
    if match := re.fullmatch(r"(\d{1,15})-(\d{1,15})", word):
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first < _RANGE_MAX:
            raise RequestError(f"{word!r} is no range of jobs: it goes up, by {_RANGE_MAX} at most, for example 12-15")
        there = set(known())
        if not (jobs := [job for job in range(first, last + 1) if job in there]):
            raise NotFound(f"there is no job in {word}. See which there are: autosched jobs")
        return jobs
    if re.fullmatch(r"\d{1,15}", word):
        return (int(word),)
    raise RequestError(f"{word!r} names no job. Write a number, a range 12-15, a list 12,14, last, all or @NAME")
