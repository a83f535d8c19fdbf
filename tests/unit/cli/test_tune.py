import pytest

from autosched.cli.tune import LAYOUTS, placed, selected, with_layout
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
