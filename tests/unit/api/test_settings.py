"""Settings of a job as keywords."""

import pytest

from autosched.api.settings import chosen
from autosched.errors import RequestError


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"target_ms": 0.0}, "target_ms is 0.0"),
        ({"target_ms": float("nan")}, "target_ms is nan"),
        ({"improve_by": 1.0}, "improve_by is 1.0"),
        ({"target_ms": 5.0, "until_faster": True}, "choose one of them"),
        ({"target_ms": 5.0, "improve_by": 0.1}, "choose one of them"),
    ],
)
def test_an_invalid_latency_is_refused(words: dict[str, float], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        chosen(words)
