"""Claims whose code has changed since they were measured are found by what their programs import."""

import shutil
import subprocess
from pathlib import Path

import pytest
import raw_results
import staleness
from raw_results import PROJECT, Stamp

PYPROJECT = '[project]\nentry-points."autosched.backends".mock = "mock_backend:Mock"\n'
FILES = {
    "pyproject.toml": PYPROJECT,
    "benchmarks/one.py": 'from package import part\nWORDS = ["-m", "started", "other.module"]\nNAME = "helper.py"\n',
    "benchmarks/helper.py": "",
    "src/package/__init__.py": "def lazy():\n    import unused\n",
    "src/package/part.py": '"""Text."""\n\n\ndef f():\n    import deep\n',
    "src/deep.py": "X = 1\n",
    "src/unused.py": "X = 1\n",
    "src/started/__init__.py": "",
    "src/started/__main__.py": "X = 1\n",
    "src/other/module.py": "X = 1\n",
}
USED = {
    "benchmarks/one.py", "benchmarks/helper.py", "src/package/__init__.py", "src/package/part.py", "src/deep.py",
    "src/started/__init__.py", "src/started/__main__.py", "src/other/module.py",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True).stdout


CACHED = (
    staleness.dependencies, staleness._changed_since, staleness._code_now, staleness._tree, staleness._used,
    staleness._groups, staleness._modules_of, staleness._files,
)  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Each test has a project of its own."""
    for cached in CACHED:
        cached.cache_clear()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one benchmark, committed."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    monkeypatch.setattr(raw_results, "PROJECT", tmp_path)
    monkeypatch.setattr(staleness, "PROJECT", tmp_path)
    return tmp_path


def test_a_program_depends_on_what_it_imports_starts_and_names(project: Path) -> None:
    found = staleness.dependencies(project / "benchmarks/one.py")
    assert {str(path.relative_to(project)) for path in found} == USED


@pytest.mark.parametrize(
    ("path", "text", "changed"),
    [
        ("src/deep.py", "X = 2\n", True),
        ("src/started/__main__.py", "X = 2\n", True),
        ("src/unused.py", "X = 2\n", False),
        ("src/deep.py", '"""New text."""\n\nX   =   1  # new comment\n', False),
    ],
)
def test_only_changed_code_counts(project: Path, path: str, text: str, changed: bool) -> None:
    since = Stamp("2026-01-01", git(project, "rev-parse", "HEAD").strip())
    (project / path).write_text(text)
    assert staleness.change(project / "benchmarks/one.py", since) == ((path,) if changed else (), len(USED))


def test_a_module_that_was_not_there_has_changed(project: Path) -> None:
    since = Stamp("2026-01-01", git(project, "rev-parse", "HEAD").strip())
    (project / "src/deep.py").write_text("import new\n")
    (project / "src/new.py").write_text("")
    git(project, "add", ".")
    assert staleness.change(project / "benchmarks/one.py", since).changed == ("src/deep.py", "src/new.py")


def test_a_decision_depends_on_the_core_and_not_on_the_daemon() -> None:
    found = {str(path.relative_to(PROJECT)) for path in staleness.dependencies(PROJECT / "benchmarks/decision_cost.py")}
    assert "src/autosched/core/scheduler.py" in found
    assert not any(path.startswith(("src/autosched/daemon/", "plugins/")) for path in found)


def test_a_program_that_names_a_backend_depends_on_no_other() -> None:
    found = {str(path.relative_to(PROJECT)) for path in staleness.dependencies(PROJECT / "benchmarks/mock_load.py")}
    assert "plugins/autosched_backend_mock/session.py" in found
    assert "src/autosched/daemon/compose.py" in found
    assert not any(path.startswith("plugins/autosched_tvm/") for path in found)
