"""Properties of the whole tree that no single module can enforce. import-linter checks imports."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autosched.stages import STAGES
from deadlines import DEADLINE_S

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for name in ("src", "plugins", "runtime") for path in (ROOT / name).rglob("*.py"))
PURE = (
    "client/plan", "core", "errors.py", "formatting.py", "model.py", "protocol", "records", "stages.py",
    "wire/frames.py",
)  # fmt: skip
IMPURE = {
    "asyncio", "time", "datetime", "random", "secrets", "uuid", "os", "socket", "threading", "subprocess", "logging",
    "platform", "tvm", "uvloop",
}  # fmt: skip
HEAVY = ("tvm", "tvm_ffi", "onnx", "xgboost", "onnxruntime", "autosched_tvm")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "the first statement is not a docstring"


def pure_files() -> list[Path]:
    package = ROOT / "src" / "autosched"
    found = {name: [package / name] if name.endswith(".py") else [*package.glob(f"{name}/**/*.py")] for name in PURE}
    assert all(files and files[0].is_file() for files in found.values()), "one of these was moved"
    called = [path for path in SOURCES if re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text())) or "")]
    assert called
    return sorted({*called, *(file for files in found.values() for file in files)})


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_modules_know_no_clock_no_chance_and_no_world(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert not imported & IMPURE


@pytest.mark.parametrize("path", sorted((ROOT / "src/autosched/core").rglob("*.py")), ids=lambda path: path.name)
def test_the_core_names_no_stage(path: Path) -> None:
    """The scheduler needs only the role and the place of a stage, which come with a load."""
    tree = ast.parse(path.read_text())
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert not words & STAGES.keys()
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "autosched.stages"]
    assert {alias.name for node in taken for alias in node.names} <= {"Stage", "StageRole"}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md"])
def test_pages_list_all_stages(page: str) -> None:
    assert f"a kind of work: {', '.join(STAGES)} |" in (ROOT / page).read_text()


STATEMENT = re.compile(r"\b(SELECT .+ FROM|INSERT (OR \w+ )?INTO|DELETE FROM|UPDATE \w+ SET|PRAGMA|VACUUM)\b")
SQL = ("src/autosched/daemon/storage/", "src/autosched/recordstore/", "src/autosched/workloads/recordings.py")
"""Folders with SQL. Recordings are read from databases of other daemons, by a package below the daemon."""


def test_sql_is_where_the_databases_are() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if STATEMENT.search(text := path.read_text()) or re.search(r"^import sqlite3", text, re.MULTILINE)
    }
    assert [path for path in sorted(found) if not path.startswith(SQL)] == []
    assert all(any(path.startswith(place) for path in found) for place in SQL), "one of these was moved"


def test_the_core_iterates_no_set() -> None:
    """The order of sets depends on the hash seed: dictionaries are used instead."""
    core = sorted((ROOT / "src/autosched/core").rglob("*.py"))
    assert len(core) > 12
    for path in core:
        made = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.For | ast.comprehension)
            and (
                isinstance(node.iter, ast.Set | ast.SetComp)
                or (isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") in ("set", "frozenset"))
            )
        ]
        assert not made, f"{path}: iterates a set in lines {made}"


@pytest.mark.parametrize(
    "module", ["autosched.daemon.compose", "autosched.cli", "autosched.client", "autosched.sim.thesis_workload"]
)
def test_no_process_of_ours_loads_the_compiler(module: str) -> None:
    """TVM can crash, hang and leak: only child processes that run a backend may load it."""
    program = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "[]"


ON_THE_WIRE = (
    "api/connection.py", "client/**/*.py", "daemon/**/*.py", "launch/**/*.py", "process/detached_process.py",
    "protocol/**/*.py", "wire/**/*.py",
)  # fmt: skip
RUNS_CODE = {"pickle", "marshal", "shelve", "cloudpickle", "dill", "importlib", "runpy", "code"}


@pytest.mark.parametrize("pattern", ON_THE_WIRE)
def test_nothing_that_comes_over_the_wire_becomes_code(pattern: str) -> None:
    """No pickles, no evaluation, no import by a peer's name: backends and policies are entry points."""
    paths = sorted((ROOT / "src" / "autosched").glob(pattern))
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                assert not {name.partition(".")[0] for name in names} & RUNS_CODE, f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), f"{path}:{node.lineno}"


def test_daemon_and_command_line_need_the_base_installation_only() -> None:
    """`pip install .` installs no TVM, no NumPy and none of their dependencies."""
    program = """
import sys
for name in "numpy scipy tvm tvm_ffi onnx onnxsim onnxruntime xgboost cloudpickle tornado".split():
    sys.modules[name] = None
from importlib import import_module
from autosched import backend, client, conformance, doctor
from autosched.cli.command_table import COMMANDS
import autosched.client.__main__, autosched.daemon.compose
for place in COMMANDS.values():
    module, _, name = place.partition(":")
    getattr(import_module(f"autosched.cli.{module}"), name)
backend.load("mock")
backend.load("ansor")
import autosched_tvm.tuning.session
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert answer.returncode == 0, answer.stderr


DECIDES_BY_TIME = (
    "client/**/*.py", "core/**/*.py", "daemon/access/admission.py", "daemon/access/authenticator.py",
    "daemon/clients/**/*.py", "daemon/devices/device_monitor.py", "daemon/policy_time_limit.py", "daemon/runtime.py",
    "process/**/*.py", "wire/link.py",
)  # fmt: skip


@pytest.mark.parametrize("pattern", DECIDES_BY_TIME)
def test_leases_and_deadlines_know_no_wall_clock(pattern: str) -> None:
    """The wall clock may jump by an hour at any time."""
    paths = list((ROOT / "src" / "autosched").glob(pattern))
    assert paths
    assert not [p for p in paths if re.search(r"\bdatetime\b|\btime\.time\(|CLOCK_REALTIME", p.read_text())]


LINES_MAX = 110_000
"""Budget of lines of code in src, plugins, runtime and benchmarks, which CONTRIBUTING.md names."""


def test_the_code_stays_within_its_budget_of_lines() -> None:
    folders = ("src", "plugins", "runtime", "benchmarks")
    counts = {name: sum(len(path.read_text().splitlines()) for path in (ROOT / name).rglob("*.py")) for name in folders}
    print(f"lines of code: {sum(counts.values()):,}, of {LINES_MAX:,} at most; {counts}")
    assert 0.9 * LINES_MAX < sum(counts.values()) <= LINES_MAX, f"{counts}: delete, or find what is there already"
    assert f"{LINES_MAX:,} lines" in (ROOT / "CONTRIBUTING.md").read_text()


ANY_MAX = 300
"""Maximum annotations `Any` in plugins. TVM and ONNX have many values without a type of their own."""


def test_plugins_say_what_their_functions_take_and_return() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match}"
        for path in (ROOT / "plugins").rglob("*.py")
        for line, text in enumerate(path.read_text().splitlines(), 1)
        for match in re.findall(r"(?:: |-> )Any\b", text)
    ]
    assert 0 < len(found) < ANY_MAX, "a type of autosched_tvm.tvm_types, of ONNX or of NumPy says more"
