"""Results of another user's job go where the reader wants, and never where that user says."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from hostile.of_key import submit_with
from integration.lab import BOARD, Lab, Said, command_line, lab

SETTINGS = f'listen = "127.0.0.1:0"\n{BOARD}'


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab", SETTINGS) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with files that must stay, and one to work in."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / "work").mkdir()
    (folder / ".ssh/records.jsonl").write_text("own")
    (folder / "report.json").write_text("own")
    return folder


@pytest.fixture
def command(
    there: Lab, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    return command_line(there, home / "work", monkeypatch, capsys)


@pytest.mark.parametrize("words", [("fetch",), ("attach",), ("fetch", "by number")], ids=["fetch", "attach", "number"])
@pytest.mark.parametrize("spec", [{"output": "{home}/.ssh"}, {"name": ".."}, {"name": "x/../../../home"}])
def test_nothing_is_written_where_another_user_says(
    there: Lab, home: Path, command: Callable[..., Said], words: tuple[str, ...], spec: dict[str, str]
) -> None:
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    said = {name: text.format(home=home) for name, text in spec.items()}
    job = submit_with(there, eve, **{"trials": 4, **said})
    assert there.wait(job).state == "done"
    name = said.get("name", "net")
    selection = str(job) if len(words) > 1 else f"eve:@{name}"
    code, _, err = command(words[0], selection)
    assert code == 0, err
    assert "is of key eve, not yours" in err
    (made,) = (home / "work").iterdir()
    assert made.name.endswith("-tuned")
    assert str(made) in err
    assert (made / "report.json").exists()
    assert (home / ".ssh/records.jsonl").read_text() == "own"
    assert (home / "report.json").read_text() == "own"
    assert sorted(os.listdir(home)) == [".ssh", "report.json", "work"]


def test_names_labels_and_last_mean_own_jobs(there: Lab, home: Path, command: Callable[..., Said]) -> None:
    eve, _ = keyring.make(there.folder / "keys", Role.USER, "eve")
    own = there.submit(trials=4, name="resnet50", labels={"team": "vision"})
    others = submit_with(there, eve, trials=4, name="resnet50", labels={"team": "vision"})
    for job in (own, others):
        assert there.wait(job).state == "done"
    for word in ("last", "@resnet50", "team=vision"):
        assert f"job {own}" in command("fetch", word)[1]
        assert f"job {others}" in command("fetch", f"eve:{word}")[1]
        assert f"job {others}" in command("fetch", f"any:{word}")[1]
    code, _, err = command("fetch", "@other")
    assert (code, "no job of yours is named 'other'" in err) == (4, True)
