"""Surroundings that a user's machine may have, with the mock backend; `make machines` tries them with TVM."""

from pathlib import Path

import pytest

from machines.case import Case, Impossible
from machines.surroundings import MOCK, cases


@pytest.mark.parametrize("case", cases(MOCK), ids=lambda case: case.name.replace(" ", "-"))
def test_the_program_works_or_says_what_to_do(case: Case, tmp_path: Path) -> None:
    try:
        case.attempt(tmp_path)
    except Impossible as error:
        pytest.skip(str(error))
