import pytest

from autosched.errors import RequestError
from autosched_backend_mock.options import read


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colour": "red"}, "no option 'colour'; it has: tasks, import_s"),
        ({"tasks": 0}, "option tasks: expected a whole number >= 1"),
        ({"build_s": "fast"}, "option build_s: expected a number, got text"),
        ({"fail_ratio": 1.5}, "option fail_ratio: expected a number <= 1.0"),
        ({"hang_stage": "bild"}, "option hang_stage: invalid enum value 'bild'"),
        ({"instance": "/a.json", "journal": "/b.db"}, "both are set; leave one out"),
        ({"instance_job": 1}, "instance_job is set, but no file to look it up in; set instance=FILE"),
        ({"journal_job": 1}, "set journal=FILE"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_in_words(
    given: dict[str, bool | int | float | str], said: str
) -> None:
    with pytest.raises(RequestError) as refused:
        read(given)
    assert said in str(refused.value)


def test_whole_numbers_are_seconds_too() -> None:
    assert read({"build_s": 2}).seconds("build") == 2.0
    assert read({}).seconds("build") == 0.0
