import pytest

from autosched.errors import RequestError
from autosched_backend_autotvm import options


def test_defaults_are_those_of_autotvm_but_for_the_loss() -> None:
    found = options.read({})
    assert (found.tuner, found.plan_size, found.loss_type, found.epsilon) == ("xgb", 64, "rank", 0.05)
    assert (found.sa_n_iter, found.sa_parallel_size, found.sa_early_stop) == (500, 128, 50)
    assert (found.ga_pop_size, found.ga_elite_num, found.ga_mutation_prob) == (100, 3, 0.1)
    assert found.fallback == "ansor"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tunner": "ga"}, "no option 'tunner'; it has: .*tuner"),
        ({"tuner": "sa"}, "sa"),
        ({"epsilon": 2.0}, "epsilon"),
        ({"knobs": "tile_ow=7"}, "option knobs.*Give a JSON object of lists"),
        ({"enlarge": '{"tile_ow": 7}'}, "option enlarge.*Give a JSON object of lists"),
        ({"index_from": 5, "index_to": 5}, "index_to 5 leaves nothing after index_from 5"),
    ],
)
def test_invalid_values_are_named(given: dict[str, bool | int | float | str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        options.read(given)


def test_knobs_are_lists_of_values() -> None:
    assert options.wanted("knobs", '{"tile_ow": [7, 14], "tile": [[2, 4]]}') == {"tile_ow": [7, 14], "tile": [[2, 4]]}
    assert options.wanted("knobs", " ") == {}
