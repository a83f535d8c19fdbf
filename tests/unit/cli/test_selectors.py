from collections.abc import Sequence

import pytest

from autosched.errors import NotFound, RequestError
from autosched.selectors import select, select_one, up_to
from samples import job_view


def known() -> Sequence[int]:
    return [3, 12, 13, 14, 20]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [(["12"], [12]), (["12-15"], [12, 13, 14]), (["12,14"], [12, 14]), (["last"], [20]), (["all"], [3, 12, 13, 14, 20]),
     (["14", "12-13"], [14, 12, 13]), (["12,12", "12"], [12]), (["99"], [99])],
)  # fmt: skip
def test_jobs_are_chosen_in_the_order_of_the_words_each_once(words: list[str], jobs: list[int]) -> None:
    assert select(words, known) == jobs


def test_a_number_needs_no_list() -> None:
    def never() -> Sequence[int]:
        raise AssertionError("asked for all jobs")

    assert select(["7", "8,9"], never) == [7, 8, 9]


@pytest.mark.parametrize("word", ["", "foo", "1-", "-3", "5-3", "1-99999999", "last2", "1;2"])
def test_what_names_no_job(word: str) -> None:
    with pytest.raises(RequestError, match=r"names no job|no range"):
        select([word], known)


def test_nothing_to_choose_from() -> None:
    with pytest.raises(NotFound, match="autosched submit"):
        select(["last"], list)
    with pytest.raises(NotFound, match="autosched jobs"):
        select(["21-30"], known)


def test_one_job_means_one() -> None:
    assert select_one("last", known) == 20
    with pytest.raises(RequestError, match="names 3 jobs"):
        select_one("12-14", known)


def test_all_counts_up_to_the_newest_job() -> None:
    assert select(["all"], lambda: up_to([job_view()])) == list(range(1, 8))
    assert list(up_to([])) == []
