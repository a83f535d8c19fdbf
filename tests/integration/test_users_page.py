"""docs/users.md, typed as written against a daemon whose backend needs no compiler."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.lab import MODEL, Lab, Said, command_line, lab

TEXT = (Path(__file__).parents[2] / "docs/users.md").read_text()
NEED_A_COMPILER = {"run", "evaluate", "model", "compile"}
"""Commands that are tested with TVM."""
WATCH = {"top", "doctor", "records"}
"""Commands with tests of their own."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def typed(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    for name in ("net.onnx", "other.onnx"):
        (tmp_path / name).write_bytes(MODEL)
    return command_line(there, tmp_path, monkeypatch, capsys)


def test_its_commands_work_one_after_the_other(typed: Callable[..., Said], there: Lab) -> None:
    ran = []
    for line in re.findall(r"^    autosched (.+)$", TEXT, re.MULTILINE):
        words = shlex.split(line, comments=True)
        if words[0] in NEED_A_COMPILER | WATCH or words[0] == "--host":
            continue
        if words[0] == "tune":
            words += ["--backend", "mock"]
            if "--cores" in words:  # a running daemon refuses more cores than its device has
                words[words.index("--cores") + 1] = "1"
        elif words[0] == "submit":  # slow enough to be raised, held and cancelled
            words += ["--backend", "mock", "--option", "build_s=60"]
        code, out, err = typed(*words)
        assert code == 0, (words, out, err)
        ran.append(words[0])
    assert {"tune", "submit", "jobs", "explain", "devices", "gantt", "set", "hold", "release", "cancel"} <= set(ran)


def test_its_python_works(there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOSCHED_HOST", there.address)
    for name in ("net.onnx", "other.onnx"):
        (tmp_path / name).write_bytes(MODEL)
    for code in re.findall(r"^```python\n(.+?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        if "autosched_runtime" in code:  # tests/unit/autosched_runtime/test_session.py runs it with a network
            continue
        code = code.replace("(trials=64)", '(trials=64, backend="mock")')
        code = code.replace('tuned.compile().save("out")', "assert tuned.evaluation is not None")  # needs a compiler
        exec(compile(code, "docs/users.md", "exec"), {})
