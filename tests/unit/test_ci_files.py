"""The files for continuous integration: their commands can be typed."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from autosched.cli.command_table import autosched
from unit.test_pages import understand

FILES = sorted((Path(__file__).parents[2] / "etc/ci").glob("*.yml"))


def texts(part: Any) -> list[str]:
    """Returns all texts in a document."""
    if isinstance(part, dict):
        return [text for each in part.values() for text in texts(each)]
    if isinstance(part, list):
        return [text for each in part for text in texts(each)]
    return [part] if isinstance(part, str) else []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_commands_can_be_typed(path: Path) -> None:
    lines = [line for text in texts(yaml.safe_load(path.read_text())) for line in text.splitlines()]
    commands = [shlex.split(found[1]) for line in lines if (found := re.match(r"\s*autosched (.+)$", line))]
    assert [words[0] for words in sorted(commands)] == ["daemon", "gate", "tune"]
    for words in commands:
        understand(autosched, [str(path) if word == "$MODEL" else word for word in words])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_record_store_comes_from_the_cache(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"XDG_STATE_HOME: \S.*\.autosched$", text, re.MULTILINE)
    assert ".autosched" in str(yaml.safe_load(text))
    assert "MODEL: model.onnx" in text


def test_there_is_a_file_for_each_service() -> None:
    assert [path.name for path in FILES] == ["github-actions.yml", "gitlab-ci.yml"]
