"""`autosched top` against a daemon in the same loop, with a pilot at the keys, at 80x24."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from autosched.api.connection import Daemon
from autosched.cli.command_table import run as command
from autosched.model import JobState
from autosched.top import app as view
from autosched.top.app import Top
from deadlines import DEADLINE_S
from integration.served import BUILD, LANE, PROFILE, attached, run, serving, user


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls often, with pauses: a pilot's key waits until nothing is drawn, for up to a second."""
    monkeypatch.setattr(view, "PERIOD_S", 0.1)
    monkeypatch.setattr(view, "SHARE_MAX", 1e9)


def text(app: Top, where: str) -> str:
    return str(app._parts[where].content)


def screen(app: Top) -> str:
    """Returns the terminal's text, without colours."""
    return "\n".join("".join(part.text for part in line) for line in app.screen._compositor.render_strips())


async def shows(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await pilot.pause(0.01)


async def answered(pilot: Pilot[None], app: Top, key: str, *words: str) -> None:
    """Presses the key, and answers the prompts."""
    await pilot.press(key)
    await shows(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press(*words, "enter")
    await shows(pilot, lambda: not isinstance(app.focused, Input))


def watched(folder: Path, work: Callable[[Daemon, Pilot[None], Top], Awaitable[None]]) -> None:
    """Runs a daemon, a user, and a viewer."""

    async def test() -> None:
        async with serving(folder):
            daemon = await user(folder)
            app = Top(f"unix:{folder}/api.sock")
            async with app.run_test(size=(80, 24)) as pilot:
                await shows(pilot, lambda: app._watch.last)
                await work(daemon, pilot, app)
            daemon.close()

    run(test)


def test_without_jobs_top_shows_the_first_command(tmp_path: Path) -> None:
    async def work(daemon: Daemon, pilot: Pilot[None], app: Top) -> None:
        assert "0 running, 0 waiting" in text(app, "headline")
        await shows(pilot, lambda: "autosched tune MODEL.onnx" in screen(app))
        assert LANE in text(app, "timeline")
        await pilot.press("question_mark")
        await shows(pilot, lambda: "explain: what it waits for" in screen(app))
        await pilot.press("escape", "q")

    watched(tmp_path, work)


def test_a_job_is_shown_explained_prioritised_and_cancelled(tmp_path: Path) -> None:
    async def work(daemon: Daemon, pilot: Pilot[None], app: Top) -> None:
        job, puppet = await attached(daemon, tmp_path, BUILD)
        await puppet.steps.get()
        await shows(pilot, lambda: "task 1 on" in screen(app))
        await shows(pilot, lambda: "was submitted" in text(app, "news"))
        assert "█" in text(app, "timeline")

        await pilot.press("e")
        await shows(pilot, lambda: "Esc closes" in screen(app))
        await pilot.press("escape")

        await answered(pilot, app, "p", *"7")
        await shows(pilot, lambda: "priority 7" in screen(app))
        assert (await daemon.job(job)).priority == 7

        await answered(pilot, app, "c", *"no")
        await pilot.press("c")
        await shows(pilot, lambda: "Type yes" in screen(app) and isinstance(app.focused, Input))
        assert JobState((await daemon.job(job)).state) is JobState.RUNNING
        await pilot.press(*"yes", "enter")
        await shows(pilot, lambda: "is cancelled" in text(app, "news"))
        assert JobState((await daemon.job(job)).state).ended

    watched(tmp_path, work)


def test_a_device_is_drained_with_a_reason_and_comes_back(tmp_path: Path) -> None:
    async def work(daemon: Daemon, pilot: Pilot[None], app: Top) -> None:
        _, puppet = await attached(daemon, tmp_path, PROFILE)
        await puppet.steps.get()
        await answered(pilot, app, "d", *"cpu0", "space", *"fan")
        await shows(pilot, lambda: "! cpu0 drained: fan" in text(app, "health"))
        await answered(pilot, app, "u")
        await shows(pilot, lambda: "cpu0 gets steps again" in text(app, "news"))
        assert "drained" not in text(app, "health")
        before = text(app, "timeline")
        await pilot.press("minus")
        await shows(pilot, lambda: "-5m00s" in text(app, "timeline"))
        assert "-2m00s" in before

    watched(tmp_path, work)


def test_top_waits_for_a_daemon_that_has_ended(tmp_path: Path) -> None:
    async def test() -> None:
        app = Top(f"unix:{tmp_path}/api.sock")
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(pilot, lambda: "! trying again: no daemon runs here" in text(app, "headline"))
            await shows(pilot, lambda: "Start one: autosched serve" in " ".join(screen(app).split()))
            async with serving(tmp_path):
                await shows(pilot, lambda: "0 running" in text(app, "headline"))
            await shows(pilot, lambda: "! trying again: " in text(app, "headline"))

    run(test)


def test_without_a_terminal_top_prints_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path, BUILD)
            await puppet.steps.get()
            code = await asyncio.to_thread(command, ["--host", f"unix:{tmp_path}/api.sock", "top"])
            assert code == 0
            daemon.close()

    run(test)
    said = capsys.readouterr().out
    assert "1 running, 0 waiting" in said
    assert LANE in said
    assert "REASON" in said
