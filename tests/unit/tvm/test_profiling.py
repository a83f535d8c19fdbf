"""What counts as an output of a kernel, and how far it may be off."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched.tvm import profiling  # noqa: E402
from autosched.tvm.profiling import Bench, WrongResult  # noqa: E402

FLAT = [((4,), "int32"), ((4,), "int32")]


def made(monkeypatch: pytest.MonkeyPatch, buffers: list[tuple[tuple[int, ...], str]], value: float) -> Bench:
    """A bench whose reference fills the last buffer with `value`."""

    def kernel(_: str) -> Any:
        return lambda *tensors: tensors[-1].copyfrom(np.full(buffers[-1][0], value, buffers[-1][1]))

    monkeypatch.setattr(profiling, "arguments", lambda _: buffers)
    monkeypatch.setattr(profiling, "kernel", kernel)
    return Bench("task", str(Path("reference")))


def test_an_output_of_zeros_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = made(monkeypatch, FLAT, 0)
    bench.check()
    bench.clear()
    with pytest.raises(WrongResult, match="output 1"):
        bench.check()


@pytest.mark.parametrize(("dtype", "right"), [("float32", False), ("float16", True)])
def test_half_precision_may_differ_in_the_third_digit(dtype: str, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = made(monkeypatch, [((4,), dtype)], 100.0)
    bench.buffers[0].copyfrom(np.full(4, 100.5, dtype))
    if right:
        bench.check()
    else:
        with pytest.raises(WrongResult):
            bench.check()
