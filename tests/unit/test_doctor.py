import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autosched import doctor
from autosched.model import RpcServer
from autosched.process import json_command
from autosched.process.program_runner import Ended
from autosched.protocol import GoneBoard, UnitList, UnitView
from autosched_tvm.compile import toolchain


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without problems, except for those that a test adds."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("XDG_RUNTIME_DIR", "AUTOSCHED_HOST", "CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "LOAD_SAMPLE_S", 0.01)

    toolchain.linker.cache_clear()
    probes(monkeypatch, Ended(0, WELL, ""))


WELL = '{"ok": true, "findings": [{"state": "ok", "what": "TVM, kernel: compiled, linked, run, right"}]}'
WRONG = '{"ok": false, "findings": [{"state": "broken", "what": "TVM, packages: 0.1.15", "fix": "pip install X"}]}'


def probes(monkeypatch: pytest.MonkeyPatch, ended: Ended) -> None:
    """Output of the child."""

    async def run(*_: Any, **__: Any) -> Ended:
        return ended

    monkeypatch.setattr(json_command, "run", run)


def examined(host: str | None = None) -> list[doctor.Finding]:
    async def run() -> list[doctor.Finding]:
        return [finding async for finding in doctor.examine(host)]

    return asyncio.run(run())


def finding(word: str, found: list[doctor.Finding]) -> doctor.Finding:
    return next(f for f in found if word in f.what)


def test_a_machine_is_looked_at_from_all_sides() -> None:
    found = examined()
    for word in (
        "linker",
        "state folder",
        "disk",
        "host: ",
        "device:cpu",
        "processes use",
        "no daemon runs",
        "compiled, linked",
    ):
        assert finding(word, found).state in ("ok", "warning")


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    broken = finding("nothing can be built", examined())
    assert (broken.state, broken.fix.split()[0]) == ("broken", "apt-get")


def test_a_compiler_that_is_named_but_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++-99")
    assert finding("'g++-99', which is not on PATH", examined()).state == "warning"


def test_a_state_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc")
    assert finding("cannot be written", examined()).state == "broken"


@pytest.mark.parametrize(("free", "state"), [(100 * 1024**2, "broken"), (2 * 1024**3, "warning"), (9 * 1024**3, "ok")])
def test_disk(monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    usage = doctor.shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: usage)
    assert finding("of disk are free", examined()).state == state


def test_a_state_folder_whose_files_may_not_be_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.machine, "executable", lambda folder: False)
    broken = finding("may not be executed (noexec)", examined())
    assert (broken.state, broken.fix.split(":")[0]) == ("broken", "choose another place")


@pytest.mark.parametrize("quota", [0.5, 1.5])
def test_a_quota_is_named(monkeypatch: pytest.MonkeyPatch, quota: float) -> None:
    monkeypatch.setattr(doctor, "cpu_quota", lambda: quota)
    monkeypatch.setattr(doctor.config, "usable_cores", lambda: (0, 1))
    assert finding(f"limits this process to {quota:g} cores' time", examined()).state == "warning"


def test_a_loaded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 80.0)
    assert finding("processes use 80 %", examined()).state == "warning"


def test_the_wrong_pair_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    probes(monkeypatch, Ended(1, WRONG, ""))
    broken = finding("TVM, packages: 0.1.15", examined())
    assert (broken.state, broken.fix) == ("broken", "pip install X")


def test_a_crash_is_blamed_on_the_check_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    probes(monkeypatch, Ended(-11, "", "trying: import\ntrying: search\n"))
    broken = finding("TVM, search: its process was killed by SIGSEGV", examined())
    assert (broken.state, "autosched[tvm]" in broken.fix) == ("broken", True)


def test_a_probe_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    probes(monkeypatch, Ended(1, "", "ModuleNotFoundError: No module named 'numpy'"))
    assert finding("TVM is not installed", examined()).state == "broken"


def test_a_daemon_that_was_named_must_answer() -> None:
    assert finding("no daemon answers", examined("tcp://127.0.0.1:1")).state == "broken"


async def _lab(*_: Any, **__: Any) -> Any:
    board = UnitView(
        "pi4-1", ("device:pi4",), (), "free", accelerator=RpcServer("pi4-1.lab:9090", "pi4", "llvm -mcpu=cortex-a72")
    )
    bare = UnitView("rk-1", ("device:rk3399",), (), "free", accelerator=RpcServer("rk-1.lab:9090"))
    lab = UnitList((board, bare), (GoneBoard("pi4-2", "pi4", "its server has hung up", 3.0),))

    async def units() -> UnitList:
        return lab

    return SimpleNamespace(lab=units, close=lambda: None)


@pytest.mark.parametrize(
    ("target", "built", "said"),
    [
        ("pi4", ["llvm -mcpu=cortex-a72"], ["pi4-1 is there, at pi4-1.lab:9090", "pi4-2 is gone"]),
        ("rk3399", [], ["rk-1 is there", "what the boards of the kind rk3399 run is not known"]),
        ("llvm -mcpu=znver4", ["llvm -mcpu=znver4"], []),
    ],
)
def test_a_target_is_built_for_and_a_kind_of_boards_looked_at(
    target: str, built: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    async def run(module: str, words: list[str], **_: Any) -> Ended:
        asked.append(words)
        return Ended(0, WELL, "")

    monkeypatch.setattr(json_command, "run", run)
    monkeypatch.setattr(doctor.Daemon, "connect", _lab)

    async def examine() -> list[doctor.Finding]:
        return [finding async for finding in doctor.examine(None, target)]

    found = asyncio.run(examine())
    assert asked == [[one] for one in built]
    for words in said:
        assert finding(words, found)
