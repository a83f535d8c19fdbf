import pytest

from autosched.errors import RequestError
from autosched_backend_ansor.options import Options
from autosched_tvm.tuning import options


def test_options_have_defaults_and_given_values() -> None:
    assert options.read("ansor", Options, {}).population_size == Options().population_size
    assert options.read("ansor", Options, {"population_size": 128, "min_repeat_ms": 5}).population_size == 128


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"populaton_size": 8}, "no option 'populaton_size'; it has: batch, .*population_size"),
        ({"population_size": 0}, "population_size"),
        ({"population_size": "many"}, "population_size"),
        ({"eps_greedy": 1.5}, "eps_greedy"),
    ],
)
def test_invalid_values_are_named(given: dict[str, bool | int | float | str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        options.read("ansor", Options, given)
