"""Child processes: they end with a reason, end all their children, and outlive the daemon."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from autosched.launch.job_folder import JOB_DIR, kill_strays, sweep
from autosched.process import detached_process
from autosched.process.detached_process import Process, birth
from deadlines import DEADLINE_S
from processes import is_dead


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    asyncio.run(limited())


@pytest.fixture(autouse=True)
def nothing_lives_on(tmp_path: Path) -> Iterator[None]:
    """Ends processes even if a test fails."""
    yield
    kill_strays(tmp_path)


def start(program: str, folder: Path) -> Process:
    return Process.start([sys.executable, "-c", program], {**os.environ, JOB_DIR: str(folder)}, folder / "log")


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("", "exit code 0"),
        ("print('bye'); raise SystemExit(3)", "exit code 3; its last words: bye"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("1 / 0", "exit code 1; its last words: ZeroDivisionError: division by zero"),
    ],
)
def test_an_end_is_told_with_its_reason(tmp_path: Path, program: str, how: str) -> None:
    async def work() -> None:
        assert await start(program, tmp_path).wait() == how

    run(work)


def test_a_log_without_end_is_cut_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached_process, "LOG_BYTES_MAX", 100_000)
    monkeypatch.setattr(detached_process, "LOG_BYTES_KEPT", 10_000)
    monkeypatch.setattr(detached_process, "LOG_LOOK_S", 0.01)
    flood = "import sys\nfor number in range(400_000): print(f'line {number}', flush=not number % 1_000)\nsys.exit(3)"

    async def work() -> None:
        process, log = start(flood, tmp_path), tmp_path / "log"
        ended = asyncio.ensure_future(process.wait())
        while not ended.done() and b"removed here" not in log.read_bytes():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert b"removed here" in log.read_bytes()
        assert (await ended).startswith("exit code 3; its last words: line 39")
        detached_process.cut_log(log)
        assert log.read_text().splitlines()[-1].startswith("line 39")
        assert log.stat().st_size <= 110_000

    run(work)


CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session={new_session})
print(child.pid, flush=True)
{then}
"""


def lines(log: Path) -> list[str]:
    return log.read_text().split("\n")[:-1] if log.exists() else []


async def first_line(log: Path) -> str:
    while True:
        if there := lines(log):
            return there[0]
        await asyncio.sleep(0.01)


async def is_gone(pid: int) -> None:
    while True:
        if is_dead(pid):
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("then", ["time.sleep(1000)", ""])
def test_its_group_dies_with_it(tmp_path: Path, then: str) -> None:
    async def work() -> None:
        process = start(CHILD.format(new_session=False, then=then), tmp_path)
        child = int(await first_line(tmp_path / "log"))
        process.kill()
        await process.wait()
        await is_gone(child)

    run(work)


def test_what_left_the_group_is_found_by_its_job_folder(tmp_path: Path) -> None:
    folder = tmp_path / "jobs/12"
    folder.mkdir(parents=True)

    async def work() -> None:
        process = start(CHILD.format(new_session=True, then=""), folder)
        child = int(await first_line(folder / "log"))
        await process.wait()
        os.kill(child, 0)
        assert kill_strays(tmp_path / "other") == []
        assert kill_strays(tmp_path / "jobs/1") == [], "a name that only begins alike is another folder"
        assert kill_strays(tmp_path / "jobs") == [child]
        await is_gone(child)

    run(work)


def test_what_started_after_a_moment_lives_on(tmp_path: Path) -> None:
    async def work() -> None:
        process = start("import time; print('here', flush=True); time.sleep(600)", tmp_path)
        await first_line(tmp_path / "log")
        started_s = int(birth(process.pid).partition("/")[2]) / os.sysconf("SC_CLK_TCK")
        assert kill_strays(tmp_path, before_s=started_s) == []
        assert kill_strays(tmp_path, before_s=started_s + 1) == [process.pid]
        await process.wait()

    run(work)


def test_a_process_that_is_only_just_beginning_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the kernel replaces a program by another, it shows no environment."""
    young: list[SimpleNamespace] = []
    # nothing else is inspected first, since the process would have started then
    monkeypatch.setattr(os, "scandir", lambda _: young)

    for _ in range(30):
        with subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(20)"], env={JOB_DIR: str(tmp_path)}
        ) as process:
            try:
                young[:] = [SimpleNamespace(name=str(process.pid))]
                assert kill_strays(tmp_path) == [process.pid]
            finally:
                process.kill()


PARENT = """
import asyncio, os, sys
from pathlib import Path
from autosched.process.detached_process import Process
async def main():
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    process = Process.start(command, os.environ, Path(sys.argv[1]))
    print(process.pid, flush=True)
    await process.wait()
asyncio.run(main())
"""


def test_it_outlives_its_parent_and_another_one_adopts_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PARENT, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, JOB_DIR: str(tmp_path)}) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()

    async def work() -> None:
        born = birth(child)
        assert Process.adopt(child, f"{born}0", log) is None, "the number is another's by now"
        adopted = Process.adopt(child, born, log)
        assert adopted is not None
        assert adopted.memory_bytes > 0
        adopted.kill()
        assert await adopted.wait() == "it ended"
        assert adopted.memory_bytes == 0
        assert Process.adopt(child, born, log) is None

    run(work)


def test_what_belongs_to_a_spared_folder_lives_on(tmp_path: Path) -> None:
    spared, other = tmp_path / "1", tmp_path / "11"
    for folder in (spared, other):
        folder.mkdir()

    async def work() -> None:
        stays, goes = (start("import time; time.sleep(1000)", folder) for folder in (spared, other))
        assert kill_strays(tmp_path, [spared]) == [goes.pid]
        await goes.wait()
        assert not is_dead(stays.pid)
        stays.kill()
        await stays.wait()

    run(work)


def test_what_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(FileNotFoundError):
            Process.start(["/nowhere/python"], {}, tmp_path / "log")

    run(work)


def test_of_an_ended_job_the_logs_stay(tmp_path: Path) -> None:
    for name in ("net.onnx", "client.log", "builds/tuned.so", "logs/build-1.log", "out/net.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "client.log",
        "logs",
        "logs/build-1.log",
    ]
