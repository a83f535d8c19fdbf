"""docs/experiments.md: its files are experiments, and its commands and Python code run as written."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autosched import zoo
from autosched.errors import RequestError
from autosched.experiments import table
from autosched.experiments.definition import Definition, parse
from autosched.experiments.parameters import PARAMETERS
from integration.lab import BOARD, Lab, Said, command_line, lab

TEXT = (Path(__file__).parents[2] / "docs/experiments.md").read_text()
FILES = re.findall(r"^```toml\n(.+?)^```$", TEXT, re.DOTALL | re.MULTILINE)
CELLS = re.findall(r"^```python\n(.+?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [line.split("#")[0].split() for line in re.findall(r"^    autosched (experiment .+)$", TEXT, re.MULTILINE)]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), BOARD) as running:
        yield running


@pytest.mark.parametrize("text", FILES)
def test_its_files_are_experiments(text: str, tmp_path: Path) -> None:
    found = parse(text, tmp_path / "page.toml")
    assert len(found.combinations()) in (8, 36)
    assert {name for name in found.parameters["model"] if isinstance(name, str)} <= zoo.catalogue().keys()


def test_its_commands_and_its_python_run(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run with the backend that needs no compiler, on files of the same names."""
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path / "s"))
    cli: Callable[..., Said] = command_line(there, tmp_path, monkeypatch, capsys)
    (tmp_path / "early.toml").write_text(f'{FILES[0]}\nbackend = "mock"\noption.tasks = 1\n')
    for name in ("rnet", "onet"):
        (tmp_path / name).write_bytes(name.encode())
    assert [words[1] for words in COMMANDS] == ["check", "run", "status", "results", "stop"]
    for words in COMMANDS:
        code, out, err = cli(*words)
        assert code == 0, (shlex.join(words), out, err)
    names: dict[str, Any] = {}
    said = []
    for code_of_cell in CELLS:
        exec(compile(code_of_cell, "docs/experiments.md", "exec"), names)
        said.append(capsys.readouterr().out.splitlines())
    assert len(said[0]) == 8
    assert said[1][0].startswith("{'model': 'rnet'} 64 over 32 ")
    assert said[2][0].startswith("1 rnet ")


def test_it_names_all_keys_parameters_and_columns() -> None:
    rows = set(re.findall(r"`([a-z_]+)`", "\n".join(line for line in TEXT.splitlines() if line.startswith("|"))))
    columns = {name for name in table.columns(()) if name not in rows}
    assert columns == set()
    assert {name for name in PARAMETERS if name not in rows} == set()
    own = set(Definition.__struct_fields__) - {"file", "parameters", "zips", "own_daemon"}
    assert {name for name in own if name not in rows and f"[{name}]" not in TEXT and f"[[{name}]]" not in TEXT} == set()


def test_an_unknown_column_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autosched.experiments.reading import Experiment
    from autosched.experiments.rows import Row
    from autosched.experiments.workspace import Source, Workspace

    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path / "s"))
    place = Workspace("early")
    (tmp_path / "a").write_bytes(b"a model")
    place.keep(Source(str(tmp_path / "early.toml"), f'[parameters]\nmodel = "{tmp_path}/gone"\n'))
    place.add(Row(combination="1", values={"model": "a", "trials": 8}, job=1, state="done", latency_s=1.0))
    found = Experiment("early")
    assert [row["model"] for row in found.table()] == ["a"], "also after the model has gone"
    with pytest.raises(RequestError, match="no job of early has a parameter 'trails'; there are: model, trials"):
        found.compare("trails")
    with pytest.raises(RequestError, match="'latncy' is no column of numbers; there are: set_trials, latency_s"):
        found.compare("trials", "latncy")
