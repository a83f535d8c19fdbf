"""Knobs and their numbering, without TVM."""

import pytest

from autosched.errors import RequestError
from autosched_backend_autotvm.config_space import ConfigSpace, Knob

SMALL = ConfigSpace(
    "toy.llvm",
    (
        Knob("tile", (1, 2, 4), (8, 16), "columns"),
        Knob("order", ("rows", "columns")),
        Knob("threads", ((1, 32), (2, 16))),
        Knob("prefetch", (0,), range(0, 9)),
    ),
)


def test_each_index_maps_to_one_configuration_and_back():
    configs = [SMALL.config(index) for index in range(SMALL.size)]
    assert SMALL.size == 12 == len({tuple(config.values()) for config in configs})
    assert [SMALL.index(SMALL.digits(index)) for index in range(12)] == list(range(12))
    assert [SMALL.find(config) for config in configs] == list(range(12))
    assert configs[1] == {"tile": 2, "order": "rows", "threads": (1, 32), "prefetch": 0}


def test_a_configuration_read_from_json_is_found():
    assert SMALL.find({"tile": 4, "order": "columns", "threads": [2, 16], "prefetch": 0}) == 11


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tile": 4, "order": "rows", "threads": [1, 32]},
        {"tile": 3, "order": "rows", "threads": [1, 32], "prefetch": 0},
        {"tile": True, "order": "rows", "threads": [1, 32], "prefetch": 0},
        {"tile": None, "order": "rows", "threads": [1, 32], "prefetch": 0},
    ],
)
def test_a_configuration_of_another_space_is_not_found(config):
    assert SMALL.find(config) is None


@pytest.mark.parametrize("index", [-1, 12, 10**30])
def test_an_index_outside_is_an_error(index):
    with pytest.raises(IndexError):
        SMALL.digits(index)


def test_a_digit_outside_is_an_error():
    with pytest.raises(IndexError):
        SMALL.index((3, 0, 0, 0))
    with pytest.raises(ValueError, match="zip"):
        SMALL.index((0, 0))


def test_a_space_larger_than_a_machine_word_is_indexed():
    space = ConfigSpace("huge", tuple(Knob(f"k{i}", tuple(range(1000))) for i in range(8)))
    assert space.size == 10**24
    assert space.find(space.config(10**23 + 7)) == 10**23 + 7
    assert "1000000000000000000000000 configurations" in space.describe()
    assert "and 976 more" in space.describe()


def test_a_space_of_one_configuration_is_indexed():
    space = ConfigSpace("fixed", (Knob("tile", (4,)),))
    assert (space.size, space.config(0)) == (1, {"tile": 4})
    assert ConfigSpace("none", ()).size == 1
    assert ConfigSpace("none", ()).config(0) == {}


def test_a_knob_without_a_legal_value_is_refused_with_what_would_be_legal():
    with pytest.raises(RequestError, match=r"toy: knob tile has no legal value .* legal are: 8, 16"):
        ConfigSpace("toy", (Knob("tile", (), (8, 16)),))
    with pytest.raises(RequestError, match="there is no legal value at all"):
        ConfigSpace("toy", (Knob("tile", ()),))


def test_restricting_keeps_only_the_given_values():
    space = SMALL.restrict({"tile": [2, 8], "threads": [[2, 16]]})
    assert [knob.values for knob in space.knobs] == [(2, 8), ("rows", "columns"), ((2, 16),), (0,)]


def test_values_that_fit_only_other_tasks_are_left_out():
    assert SMALL.restrict({"tile": [2, 7]}).knobs[0].values == (2,)


def test_enlarging_adds_values_to_knobs_of_one_value_too():
    space = SMALL.enlarge({"tile": [8, 4], "prefetch": [4, 8]})
    assert space.knobs[0].values == (1, 2, 4, 8)
    assert space.knobs[3].values == (0, 4, 8)
    assert space.size == 4 * 2 * 2 * 3


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"tyle": [1]}, r"toy.llvm has no knob 'tyle'; it has: tile, order, threads, prefetch"),
        ({"tile": [3]}, r"knob tile: 3 leaves no legal value for this task; legal are: 1, 2, 4, 8, 16"),
        ({"tile": []}, r"knob tile: an empty list leaves no legal value"),
        ({"tile": ["two"]}, r"knob tile: 'two' is not a whole number; legal are"),
        ({"tile": [True]}, r"knob tile: True is not a whole number"),
        ({"tile": [2.0]}, r"knob tile: 2.0 is not a whole number"),
        ({"tile": 2}, r"knob tile: give a list of values, not 2"),
        ({"order": "rows"}, r"knob order: give a list of values, not 'rows'"),
        ({"order": [1]}, r"knob order: 1 is not a word"),
        ({"threads": [[1, "x"]]}, r"knob threads: \[1, 'x'\] is not a list of whole numbers"),
        ({"prefetch": [9]}, r"knob prefetch: 9 leaves no legal value for this task; legal are: 0, 0 to 8"),
    ],
)
@pytest.mark.parametrize("change", [ConfigSpace.restrict, ConfigSpace.enlarge])
def test_errors_about_knobs_name_the_template_the_knob_and_legal_values(change, wanted, said):
    with pytest.raises(RequestError, match=said):
        change(SMALL, wanted)


def test_a_space_can_be_printed():
    text = SMALL.describe()
    assert "toy.llvm: 12 configurations, 4 knobs" in text
    assert "1x32, 2x16" in text
    assert "may be added: 8, 16" in text
    assert "may be added: 0 to 8" in text
    assert "columns" in text


def test_inadmissible_configurations_have_a_reason():
    space = ConfigSpace("toy", (Knob("tile", (1, 64)),), lambda config: "too large" if config["tile"] == 64 else None)
    assert [space.admits(space.config(index)) for index in range(2)] == [None, "too large"]
    assert space.restrict({"tile": [64]}).admits({"tile": 64}) == "too large"


def test_a_restricted_space_does_not_exclude_slow_configurations():
    space = ConfigSpace("toy", (Knob("tile", (1, 2)), Knob("order", ("a", "b"))), None, lambda config: "slow")
    assert space.admits(space.config(0)) == "slow"
    assert space.enlarge({}).restrict({}).admits(space.config(0)) == "slow"
    assert space.restrict({"tile": [1]}).admits(space.config(0)) is None
