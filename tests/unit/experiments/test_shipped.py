"""The experiments that come with autosched: each is valid in both sizes, and documented."""

import re
from pathlib import Path

import pytest

from autosched import zoo
from autosched.experiments.definition import load
from autosched.experiments.forecast import expected

ROOT = Path(__file__).parents[3]
FILES = [path for path in sorted((ROOT / "experiments").glob("*.toml")) if "[parameters]" in path.read_text()]
PAGE = (ROOT / "docs/experiments.md").read_text()
QUICK_TRIALS = 7_000
"""Maximum trials of a quick size: more take longer than 20 minutes on two cores."""


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_sound_in_both_sizes(path: Path, quick: bool) -> None:
    found = load(path, quick=quick)
    assert found.about
    combinations = found.combinations()
    assert len(combinations) > 1
    assert {str(one["model"]) for one in combinations} <= zoo.catalogue().keys()
    if quick:
        assert sum(expected(one, ()).trials for one in combinations) <= QUICK_TRIALS


def test_all_are_told_on_the_page() -> None:
    told = set(re.findall(r"`([a-z-]+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    assert {path.stem for path in FILES} <= told
