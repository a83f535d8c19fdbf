import asyncio
from collections.abc import Sequence

import pytest

from autosched.errors import NotFound, RequestError
from autosched.protocol import ListJobs
from autosched.protocol.pagination import answered, answered_async
from autosched.text.job_selectors import labels, select, select_one

THERE = {3: "a", 12: "net", 13: "b", 14: "net", 20: "net"}
OF_OTHERS = {31: ("key eve", "net"), 32: ("uid 1000", "net"), 33: ("key eve", "x")}
ENDED = (3, 20)


def ask(asked: ListJobs) -> Sequence[int]:
    """Answers as a daemon with five own jobs, in pages of two; for other owners and without one, with three more."""
    mine = {job: ("me", name) for job, name in THERE.items()}
    found = [
        job
        for job, (owner, name) in sorted((mine | OF_OTHERS).items())
        if asked.owner in ("", owner)
        and asked.name in ("", name)
        and (asked.before is None or job < asked.before)
        and not (asked.state == "active" and job in ENDED)
        and asked.labels in ({}, {"team": "vision"} if job > 12 else {})
    ]
    return found[-min(asked.limit, 2) :]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [(["12"], [12]), (["12-15"], [12, 13, 14]), (["12,14"], [12, 14]), (["last"], [20]), (["all"], [12, 13, 14]),
     (["14", "12-13"], [14, 12, 13]), (["12,12", "12"], [12]), (["99"], [99]), (["@net"], [12, 14, 20]),
     (["@net", "3"], [12, 14, 20, 3]), (["team=vision"], [13, 14, 20])],
)  # fmt: skip
def test_jobs_are_chosen_in_the_order_of_the_words_each_once(words: list[str], jobs: list[int]) -> None:
    assert answered(select(words), ask) == jobs


@pytest.mark.parametrize(
    ("word", "jobs"),
    [
        ("eve:last", [33]),
        ("any:last", [33]),
        ("1000:last", [32]),
        ("eve:@net", [31]),
        ("any:@x", [33]),
        ("eve:all", [31, 33]),
    ],
)
def test_jobs_of_others_are_chosen_only_where_their_owner_is_named(word: str, jobs: list[int]) -> None:
    assert answered(select([word]), ask) == jobs
    assert answered(select_one(word), ask) == jobs[-1] if len(jobs) == 1 else True
    own = word.partition(":")[2]
    assert not set(answered(select([own if own != "@x" else "@a"]), ask)) & set(OF_OTHERS)
    assert answered(select(["31", "32-33"]), ask) == [31, 32, 33]


def test_a_missing_job_says_whose_was_looked_for() -> None:
    with pytest.raises(NotFound, match=r"no job of yours is named 'x'\. .* Of others:  any:@x"):
        answered(select(["@x"]), ask)
    with pytest.raises(NotFound, match=r"there are no jobs of key ada yet\. Submit one: autosched submit MODEL.onnx$"):
        answered(select(["ada:last"]), ask)


def test_coroutines_answer_too() -> None:
    async def slowly(asked: ListJobs) -> Sequence[int]:
        return ask(asked)

    assert asyncio.run(answered_async(select(["1-20"]), slowly)) == list(THERE)


def test_a_name_selects_only_active_jobs_for_changes() -> None:
    assert answered(select(["@net", "team=vision"], active=True), ask) == [12, 14, 13]
    with pytest.raises(NotFound, match="no active job of yours is named 'a'"):
        answered(select(["@a"], active=True), ask)


def test_a_number_needs_no_list() -> None:
    def never(asked: ListJobs) -> Sequence[int]:
        raise AssertionError(f"asked for {asked}")

    assert answered(select(["7", "8,9"]), never) == [7, 8, 9]


@pytest.mark.parametrize("word", ["", "foo", "1-", "-3", "5-3", "1-99999999", "last2", "1;2", "@"])
def test_an_unknown_job_is_refused(word: str) -> None:
    with pytest.raises(RequestError, match=r"names no job|no range"):
        answered(select([word]), ask)


@pytest.mark.parametrize("word", ["team=", "=vision", "a b=c", "a=b=c"])
def test_a_malformed_label_is_refused(word: str) -> None:
    with pytest.raises(RequestError, match="is no label"):
        labels([word])
    with pytest.raises(RequestError, match="is no label"):
        answered(select([word]), ask)


def test_a_selection_without_jobs_is_refused() -> None:
    with pytest.raises(NotFound, match="autosched submit"):
        answered(select(["last"]), lambda asked: [])
    with pytest.raises(NotFound, match=r"no job is in 21-30\. See which there are: autosched jobs"):
        answered(select(["21-30"]), lambda asked: [])
    assert answered(select(["all"]), lambda asked: []) == []


def test_a_single_job_by_name_is_the_latest() -> None:
    assert answered(select_one("last"), ask) == 20
    assert answered(select_one("@net"), ask) == 20
    assert answered(select_one("team=vision"), ask) == 20
    with pytest.raises(NotFound, match="no job of yours is named 'none'"):
        answered(select_one("@none"), ask)
    with pytest.raises(RequestError, match="names 3 jobs"):
        answered(select_one("12-14"), ask)
