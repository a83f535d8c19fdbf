from autosched.cli.tune import LAYOUTS, with_layout
from autosched.tvm.layouts.wanted import Wanted


def test_the_layouts_are_those_of_the_backends() -> None:
    assert tuple(layout.value for layout in Wanted) == LAYOUTS


def test_a_layout_is_an_option_of_the_backend() -> None:
    assert with_layout({"batch": 4}, "nchwc") == {"batch": 4, "layout": "nchwc"}
    assert with_layout({"batch": 4}, None) == {"batch": 4}
    assert with_layout({"layout": "nhwc"}, "auto") == {"layout": "nhwc"}
