"""Selects jobs by words: `12`, `12-15`, `12,14`, `last`, `all`, `@name`, `team=vision`.

All but numbers mean the caller's own jobs: a name or a label is not proof of who submitted a job. `alice:last` and
`1000:@name` name another owner, by his key or his user id, and `any:last` means all owners.

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
OWN, ANY = "me", "any"
MANY = (
    "JOB is a number, a range 12-15, a list 12,14, last, all (that have not ended), @NAME, or a label team=vision; of"
    " others: alice:last, any:@NAME."
)
"""Explanation for help texts."""
_RANGE_MAX = 10_000
_PAGE = 500
_WORD = r"[A-Za-z0-9_./-]{1,64}"
_OWNED = re.compile(r"([a-z0-9][a-z0-9_-]{0,31}):(.+)")


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
        _check(jobs, word)
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


def _owner(word: str) -> tuple[str, str]:
    """The owner in a request for jobs, and the rest of the word."""
    if (match := _OWNED.fullmatch(word)) is None:
        return OWN, word
    name, rest = match.groups()
    return "" if name == ANY else f"uid {name}" if name.isdecimal() else f"key {name}", rest


def _description(word: str) -> ListJobs | None:
    """The request for the jobs of an owner with a name or label; None for other words."""
    owner, rest = _owner(word)
    if rest.startswith("@"):
        return ListJobs(limit=_PAGE, owner=owner, name=rest[1:]) if rest[1:] else None
    return ListJobs(limit=_PAGE, owner=owner, labels=labels([rest])) if "=" in rest else None


def _named(word: str, active: bool) -> Selection[Sequence[JobId]]:
    jobs: Sequence[JobId]
    if (wanted := _description(word)) is not None:
        jobs = yield from every(replace(wanted, state=ACTIVE if active else ""))
        _check(jobs, word, active=active)
        return jobs
    owner, rest = _owner(word)
    if rest == ALL:
        return (yield from every(ListJobs(limit=_PAGE, owner=owner, state=ACTIVE)))
    if rest == LAST:
        jobs = yield ListJobs(limit=1, owner=owner)
        _check(jobs, word)
        return jobs
    if match := re.fullmatch(r"(\d{1,15})-(\d{1,15})", word):
        first, last = int(match[1]), int(match[2])
        if not 0 <= last - first < _RANGE_MAX:
            raise RequestError(f"{word!r} is no range of jobs: it goes up, by {_RANGE_MAX} at most, for example 12-15")
        jobs = yield from every(ListJobs(limit=min(_PAGE, last - first + 1), before=last + 1), first)
        if not jobs:
            raise NotFound(f"no job is in {word}. See which there are: autosched jobs")
        return jobs
    if re.fullmatch(r"\d{1,15}", word):
        return (int(word),)
    raise RequestError(
        f"{word!r} names no job. Write a number, a range 12-15, a list 12,14, last, all, @NAME or a label team=vision;"
        " for jobs of others: alice:last, any:@NAME"
    )


def _check(jobs: Sequence[JobId], word: str, *, active: bool = False) -> None:
    """Raise NotFound if there is no job."""
    if jobs:
        return
    owner, rest = _owner(word)
    whose = {OWN: " of yours", "": ""}.get(owner, f" of {owner}")
    others = f". Of others:  {ANY}:{rest}" if owner == OWN else ""
    if rest == LAST:
        raise NotFound(f"there are no jobs{whose} yet. Submit one: autosched submit MODEL.onnx{others}")
    what = f"is named {rest[1:]!r}" if rest[0] == "@" else f"has {rest}"
    raise NotFound(f"no {'active ' if active else ''}job{whose} {what}. See which there are: autosched jobs{others}")


def every(wanted: ListJobs, first: JobId = 1) -> Selection[list[JobId]]:
    """All matching jobs from the job `first` on, page by page."""
    found: list[JobId] = []
    while page := (yield wanted):
        found[:0] = [job for job in page if job >= first]
        if page[0] <= first:
            break
        wanted = replace(wanted, before=page[0])
    return found
