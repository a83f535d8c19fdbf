"""First configurations of a task, from the best ones of others."""

from autosched_backend_autotvm.config_space import Config, ConfigSpace, Knob
from autosched_backend_autotvm.seed_configurations import LIKE, OF_EACH, Examples, of

SPACE = ConfigSpace(
    "t", (Knob("tile", (1, 2, 4, 7, 14)), Knob("order", ("a", "b")), Knob("pair", ((1, 2), (2, 1)))),
)  # fmt: skip


def told(shape: tuple[int, ...], *tiles: int, order: str = "a") -> Examples:
    return Examples(shape, tuple(made(tile, order) for tile in tiles))


def made(tile: int, order: str = "a") -> Config:
    return {"tile": tile, "order": order, "pair": (2, 1)}


def tried(shape: tuple[int, ...], *known: Examples) -> list[object]:
    return [SPACE.config(index)["tile"] for index in of(shape, SPACE, known)]


def test_the_nearest_value_of_the_tasks_own_is_used() -> None:
    assert tried((14,), told((28,), 28)) == [14]
    assert tried((14,), told((28,), 6)) == [7]
    assert SPACE.config(of((14,), SPACE, [told((28,), 3, order="b")])[0]) == made(4, "b") | {"pair": (2, 1)}


def test_the_most_similar_tasks_take_turns_each_with_its_best_first() -> None:
    far, near, nearer = told((512,), 1), told((32,), 2, 4), told((28,), 14, 7)
    assert LIKE == 2
    assert tried((28,), far, near, nearer) == tried((28,), nearer, far, near) == [14, 2, 7, 4]


def test_equal_seeds_are_tried_once() -> None:
    assert tried((14,), told((28,), 28, 56, 14)) == [14]


def test_seeds_with_unknown_knobs_are_left_out() -> None:
    odd: Config = {"tile": 1, "order": "c", "pair": (2, 1)}
    fewer: Config = {"tile": 1, "order": "a"}
    tiling: Config = {"tile": 1, "order": "a", "pair": (4, 4)}
    assert of((1,), SPACE, [Examples((1,), (odd, fewer, tiling))]) == []
    assert of((1,), SPACE, []) == []


def test_tasks_with_more_dimensions_are_less_similar() -> None:
    """Fused operators add inputs."""
    assert tried((8, 8), told((8, 8, 8), 1), told((8, 8), 2), told((8, 9), 4)) == [2, 4]
    assert OF_EACH > 1
