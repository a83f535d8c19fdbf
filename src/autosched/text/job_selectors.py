"""Selects jobs by words: `12`, `12-15`, `12,14`, `last`, `all`, `@name`, `team=vision`.

A selection needs lists of jobs as it goes on, so it is a generator. The caller, who is connected to a daemon, answers
it (`protocol.pagination.answered`) with numbers of jobs, the oldest first.
"""

import re
from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from autosched.errors import NotFound, RequestError
from autosched.model import JobId
from autosched.protocol import ListJobs

T = TypeVar("T")
Selection = Generator[ListJobs, Sequence[JobId], T]

ALL, LAST, ACTIVE = "all", "last", "active"
MANY = "JOB is a number, a range 12-15, a list 12,14, last, all (that have not ended), @NAME, or a label team=vision."
"""Explanation for help texts."""
_RANGE_MAX = 10_000
_PAGE = 500
_WORD = r"[A-Za-z0-9_./-]{1,64}"


def select(words: Iterable[str], *, active: bool = False) -> Selection[list[JobId]]:
    """The selected jobs, in the order of the words, each once. `active`: names and labels select only jobs that have
    not ended, as `all` always does. Raises NotFound, or RequestError for an invalid word."""
    chosen: dict[JobId, None] = {}
    for word in (part.strip() for text in words for part in text.split(",")):
        chosen |= dict.fromkeys((yield from _named(word, active)))
    return list(chosen)


def select_one(word: str) -> Selection[JobId]:
    """The one job that `word` selects; of a name or a label the latest. Raises RequestError if it selects several."""
    if (wanted := _description(word)) is not None:
        jobs = yield replace(wanted, limit=1)
        _check(jobs, word, "")
        return jobs[-1]
    jobs = yield from select([word])
    if len(jobs) != 1:
        raise RequestError(f"{word!r} names {len(jobs)} jobs, and this command takes one. Name one, for example: last")
    return jobs[0]


def labels(words: Iterable[str]) -> dict[str, str]:
    """Parse labels such as "team=vision". Raises RequestError."""
    found = {}
    for word in words:
        if (match := re.fullmatch(rf"({_WORD})=({_WORD})", word)) is None:
            raise RequestError(f"{word[:100]!r} is no label. Write KEY=VALUE of letters, digits and _./-: team=vision")
        found[match[1]] = match[2]
    return found


def _description(word: str) -> ListJobs | None:
    """The request for jobs with a name or label; None for other words."""
    if word.startswith("@"):
        return ListJobs(limit=_PAGE, name=word[1:]) if word[1:] else None
    return ListJobs(limit=_PAGE, labels=labels([word])) if "=" in word else None


def _named(word: str, active: bool) -> Selection[Sequence[JobId]]:
    jobs: Sequence[JobId]
    if (wanted := _description(word)) is not None:
        jobs = yield from every(replace(wanted, state=ACTIVE if active else ""))
        _check(jobs, word, "active " if active else "")
        return jobs
    if word == ALL:
        return (yield from every(ListJobs(limit=_PAGE, state=ACTIVE)))
    if word == LAST:
        if not (jobs := (yield ListJobs(limit=1))):
            raise NotFound("there are no jobs yet. Submit one: autosched submit MODEL.onnx")
        return jobs
    if match := re.fullmatch(r"(\d{1,15})-(\d{1,15})", word):
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first < _RANGE_MAX:
            raise RequestError(f"{word!r} is no range of jobs: it goes up, by {_RANGE_MAX} at most, for example 12-15")
        jobs = yield from every(ListJobs(limit=min(_PAGE, last - first + 1), before=last + 1), first)
        _check(jobs, word, "")
        return jobs
    if re.fullmatch(r"\d{1,15}", word):
        return (int(word),)
    raise RequestError(
        f"{word!r} names no job. Write a number, a range 12-15, a list 12,14, last, all, @NAME or a label team=vision"
    )


def _check(jobs: Sequence[JobId], word: str, which: str) -> None:
    if not jobs:
        what = f"is named {word[1:]!r}" if word[0] == "@" else f"has {word}" if "=" in word else f"is in {word}"
        raise NotFound(f"no {which}job {what}. See which there are: autosched jobs")


def every(wanted: ListJobs, first: JobId = 1) -> Selection[list[JobId]]:
    """All matching jobs from the job `first` on, page by page."""
    found: list[JobId] = []
    while page := (yield wanted):
        found[:0] = [job for job in page if job >= first]
        if page[0] <= first:
            break
        wanted = replace(wanted, before=page[0])
    return found
