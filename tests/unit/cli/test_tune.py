from itertools import pairwise
from typing import Any

import click
import pytest

from autosched.cli.tune import LAYOUTS, choices_of, placed, selected, shapes_of, sizes_of, told_apart, with_layout
from autosched.errors import RequestError
from autosched.protocol import GoneBoard, UnitList, UnitView
from autosched_tvm.compile.layouts.layout_option import LayoutOption

LAB = UnitList(
    (
        UnitView("host/0", ("host",), (0,), "free"),
        UnitView("cpu0", ("device:cpu", "host"), (1,), "free"),
        UnitView("pi4-1", ("device:pi4",), (), "free"),
    ),
    (GoneBoard("rk-1", "rk3399", "its server has hung up", 3.0),),
)


def test_the_layouts_are_those_of_the_backends() -> None:
    assert tuple(layout.value for layout in LayoutOption) == LAYOUTS


def test_a_layout_is_an_option_of_the_backend() -> None:
    assert with_layout({"batch": 4}, "nchwc") == {"batch": 4, "layout": "nchwc"}
    assert with_layout({"batch": 4}, None) == {"batch": 4}
    assert with_layout({"layout": "nhwc"}, "auto") == {"layout": "nhwc"}


@pytest.mark.parametrize(
    ("target", "device", "job"),
    [
        ("pi4", "cpu", ("auto", "pi4")),
        ("auto", "pi4", ("auto", "pi4")),
        ("rk3399", "cpu", ("auto", "rk3399")),
        ("x86-64-v3", "cpu", ("x86-64-v3", "cpu")),
        ("llvm -mcpu=pi5", "cpu", ("llvm -mcpu=pi5", "cpu")),
        ('{"mcpu":"znver4"}', "cpu", ('{"mcpu":"znver4"}', "cpu")),
    ],
)
def test_a_target_may_be_a_kind_of_device(target: str, device: str, job: tuple[str, str]) -> None:
    assert placed(target, device, LAB) == job


@pytest.mark.parametrize("word", ["pi5", "gpu", "x86-64-v9"])
def test_an_unknown_target_is_refused_with_the_known_ones(word: str) -> None:
    with pytest.raises(RequestError, match=rf'there are: cpu, pi4, rk3399\..*-t "llvm -mcpu={word}"') as refused:
        placed(word, "cpu", LAB)
    assert ("Did you mean pi4?" in str(refused.value)) == (word == "pi5")


@pytest.mark.parametrize(("jobs", "words"), [([7], "7"), ([7, 8, 9], "7-9"), ([7, 9, 10], "7,9,10")])
def test_the_advice_to_stop_jobs_names_only_those_of_the_user(jobs: list[int], words: str) -> None:
    assert selected(jobs) == words


CONTEXT: Any = None
"""The callbacks of options look at neither context nor option."""


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        ([], [{}]),
        (["x=1,3"], [{"x": (1, 3)}]),
        (["x=1x3"], [{"x": (1, 3)}]),
        (["a=b=2"], [{"a=b": (2,)}]),
        (["x=1,3", "x=8,3"], [{"x": (1, 3)}, {"x": (8, 3)}]),
        (["x=1", "y=1", "x=2", "y=2"], [{"x": (1,), "y": (1,)}, {"x": (2,), "y": (2,)}]),
        (["x=1", "n=4", "x=2"], [{"x": (1,), "n": (4,)}, {"x": (2,), "n": (4,)}]),
    ],
)
def test_several_shapes_of_an_input_are_choices(words: list[str], choices: list[dict[str, Any]]) -> None:
    assert choices_of(CONTEXT, CONTEXT, tuple(words)) == (choices, None)
    if len(choices) == 1:
        assert shapes_of(CONTEXT, CONTEXT, tuple(words)) == choices[0]
    else:
        with pytest.raises(click.BadParameter, match="several shapes of an input are for  autosched tune"):
            shapes_of(CONTEXT, CONTEXT, tuple(words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "is no shape"),
        (["=1"], "is no shape"),
        (["x=1,,2"], "is no shape"),
        (["x=1,0"], "a size of 0"),
        (["x=1", "x=1"], "given twice"),
        (["x=1", "x=2", "y=1", "y=2", "y=3"], "x has 2 shapes, and another input 3"),
        (["x=1,5..2"], "is no range of sizes"),
        (["x=1,0..8"], "is no range of sizes"),
        (["x=1,4..4"], "is no range of sizes"),
        (["x=1,1..8", "y=1,1..9"], "there are several ranges: 1..8, 1..9"),
        (["x=1,1..8", "x=1,9"], "the range 1..8 and another shape"),
        (["x=1,1.."], "is no shape"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        choices_of(CONTEXT, CONTEXT, tuple(words))


def test_a_range_is_a_network_for_each_of_some_sizes() -> None:
    found = choices_of(CONTEXT, CONTEXT, ("ids=1,1..64", "mask=1,1..64", "k=3"))
    assert found.least == 1
    assert found.shapes[0] == {"ids": (1, 1), "mask": (1, 1), "k": (3,)}
    assert found.shapes[-1] == {"ids": (1, 64), "mask": (1, 64), "k": (3,)}
    assert [one["ids"][1] for one in found.shapes] == sizes_of(1, 64)


@pytest.mark.parametrize(("least", "most"), [(1, 512), (1, 128), (16, 300), (7, 2000), (100, 130)])
def test_padding_to_the_sizes_of_a_range_adds_at_most_an_eighth(least: int, most: int) -> None:
    sizes = sizes_of(least, most)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (least, most)
    assert all(larger <= max(1.14 * (size + 1), size + 1) for size, larger in pairwise(sizes))
    assert len(sizes) <= 60


@pytest.mark.parametrize(
    ("least", "most", "sizes"), [(1, 4, [1, 2, 3, 4]), (9, 12, [9, 10, 12]), (100, 101, [100, 101])]
)
def test_small_ranges_have_few_networks(least: int, most: int, sizes: list[int]) -> None:
    assert sizes_of(least, most) == sizes


def test_folders_of_several_networks_are_named_after_what_differs() -> None:
    shapes = [{"x": (1, 3), "n": (4,)}, {"x": (8, 3), "n": (4,)}]
    assert told_apart(shapes[:1], ["auto"]) == [""]
    assert told_apart(shapes, ["auto"]) == ["1x3", "8x3"]
    assert told_apart(shapes[:1], ["x86-64-v3", "x86-64-v4", "x86-64-v3"]) == ["x86-64-v3", "x86-64-v4"]
    assert told_apart(shapes, ["a", "b"]) == ["a-1x3", "a-8x3", "b-1x3", "b-8x3"]
