"""The product of an experiment's lists, and the names of its jobs."""

import pytest

from autosched.experiments.combinations import Lists, combine, digest, matches, varied

LISTS: Lists = {"model": ("a", "b"), "trials": (8, 16), "seed": (0, 1)}


def told(found: list[dict[str, bool | int | float | str]]) -> list[str]:
    return [" ".join(map(str, one.values())) for one in found]


def test_all_combinations_the_last_parameter_first() -> None:
    assert told(combine(LISTS)) == ["a 8 0", "a 8 1", "a 16 0", "a 16 1", "b 8 0", "b 8 1", "b 16 0", "b 16 1"]


def test_lists_in_step_count_as_one() -> None:
    assert told(combine(LISTS, [("model", "trials")])) == ["a 8 0", "a 8 1", "b 16 0", "b 16 1"]
    assert told(combine(LISTS, [("seed", "model")])) == ["a 8 0", "b 8 1", "a 16 0", "b 16 1"]
    assert told(combine(LISTS, [("model", "trials", "seed")])) == ["a 8 0", "b 16 1"]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ({"model": ("a",)}, ["b 8 0", "b 8 1", "b 16 0", "b 16 1"]),
        ({"model": ("a",), "trials": (8,)}, ["a 16 0", "a 16 1", "b 8 0", "b 8 1", "b 16 0", "b 16 1"]),
        ({"seed": (0, 1)}, []),
        ({"backend": ("gcc",)}, 8),
        ({"backend": ("autotvm",)}, []),
    ],
    ids=["one value", "two together", "everything", "a default that is another", "a default"],
)
def test_what_is_left_out(exclude: Lists, left: list[str] | int) -> None:
    found = told(combine(LISTS, exclude=[exclude]))
    assert (found if isinstance(left, list) else len(found)) == left


def test_what_is_added_takes_all_values_of_the_other_lists() -> None:
    found = told(combine(LISTS, include=[{"model": ("c",), "trials": (99,)}]))
    assert found[8:] == ["c 99 0", "c 99 1"]
    more = combine({"model": ("a",)}, include=[{"policy": ("stagewise",)}])
    assert more == [{"model": "a"}, {"model": "a", "policy": "stagewise"}]


def test_what_is_added_breaks_the_step_of_lists_that_it_names() -> None:
    found = told(combine(LISTS, [("model", "trials")], include=[{"model": ("c",)}]))
    assert found[4:] == ["c 8 0", "c 8 1", "c 16 0", "c 16 1"]


def test_each_combination_comes_once() -> None:
    assert len(combine(LISTS, include=[{"model": ("a", "c")}])) == 12
    assert combine({"option.x": (1, True, 1.0)}) == [{"option.x": 1}, {"option.x": True}, {"option.x": 1.0}]


def test_what_is_left_out_may_be_added_again() -> None:
    assert "a 8 0" in told(combine(LISTS, exclude=[{"model": ("a",)}], include=[{"model": ("a",), "trials": (8,)}]))


def test_equal_jobs_have_one_name() -> None:
    name = digest({"model": "a", "trials": 8}, "00")
    assert name == digest({"trials": 8, "model": "other name", "seed": 0, "fresh": True}, "00")
    others = [
        digest({"model": "a", "trials": 8}, "01"), digest({"model": "a", "trials": 9}, "00"),
        digest({"model": "a", "trials": 8, "seed": 1}, "00"), digest({"model": "a", "trials": 8, "fresh": False}, "00"),
    ]  # fmt: skip
    assert len({name, *others}) == 5


def test_parameters_that_differ() -> None:
    assert varied(combine(LISTS)) == ["model", "trials", "seed"]
    assert varied(combine({**LISTS, "model": ("a",)})) == ["trials", "seed"]
    assert varied([{"model": "a"}, {"model": "a", "seed": 0}]) == [], "a default that is spelled out"
    assert varied([]) == []


def test_a_combination_without_the_parameter_has_its_default() -> None:
    assert matches({"model": "a"}, {"seed": (0,)})
    assert not matches({"model": "a"}, {"seed": (1,)})
    assert not matches({"model": "a"}, {"layout": ("nchw",)})
