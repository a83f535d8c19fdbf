"""Replays each transcript in this folder, which must be reproduced exactly."""

from pathlib import Path

import pytest

from transcripts import Script

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    assert written.startswith("# "), f"{path.name} does not say why it is told"
    played = Script().play(written)
    if request.config.getoption("--rewrite"):
        path.write_text(played)
        return
    assert played.splitlines() == written.splitlines(), f"if this is meant: pytest {path.parent} --rewrite"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 25


@pytest.mark.parametrize(
    "text",
    ["hello", "> 0 Nothing", "? why not", "> 0 ResourcesDeclared host=a\n> 0 JobSubmitted 1\n> 0 ClientAttached 1 | x"],
)
def test_a_mistake_in_a_transcript_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|invalid literal"):
        Script().play(text)
