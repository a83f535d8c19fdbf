"""The cluster manager that starts agents."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from autosched.config import LauncherConfig
from autosched.daemon import engine
from autosched.daemon.engine import Engine, order_of
from autosched.errors import ConfigError
from autosched.launch.dask_task import Order
from deadlines import DEADLINE_S

KEY = "agent:dask:secret\n"


def settings(folder: Path, **other: str) -> LauncherConfig:
    (folder / "key").write_text(KEY)
    words = {"scheduler": "tcp://lab:8786", "daemon": "tls://lab:7433", "key": str(folder / "key"), **other}
    return LauncherConfig(kind="dask", agents=3, **words)


def test_without_a_kind_there_is_none(tmp_path: Path) -> None:
    assert order_of(LauncherConfig()) is None
    Engine(None, tmp_path).start()
    Engine(None, tmp_path).stop(ends=True)


def test_an_order_has_all_that_a_worker_needs(tmp_path: Path) -> None:
    order = order_of(settings(tmp_path, name="lab"))
    assert order == Order("tls://lab:7433", KEY, 3, "lab", scheduler="tcp://lab:8786")
    assert order.name(2) == "lab-2"


def test_a_key_is_in_no_log(tmp_path: Path) -> None:
    """Dask logs the arguments of a failed task."""
    assert "secret" not in repr(order_of(settings(tmp_path)))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"scheduler": ""}, "name either the address of a Dask scheduler"),
        ({"cluster": "lab.json"}, "name either the address of a Dask scheduler"),
        ({"daemon": ""}, "launcher.daemon: name the address by which agents reach this daemon"),
        ({"key": "nowhere"}, "autosched key new agent dask"),
    ],
)
def test_a_setting_that_is_missing_is_told(tmp_path: Path, other: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        order_of(settings(tmp_path, **other))


def test_an_engine_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "pauses", lambda: iter([0.0] * 3))
    started = tmp_path / "started"
    script = tmp_path / "engine.sh"
    script.write_text(f'#!/bin/sh\nls -l "$5" >> {started}\n[ "$6" ] && echo "$6" >> {started}\nexit 3\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    async def story() -> None:
        made = Engine(order_of(settings(tmp_path)), tmp_path)
        made.start()
        async with asyncio.timeout(DEADLINE_S):
            while not started.exists() or len(started.read_text().splitlines()) < 2:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0)
        made.stop(ends=True)
        assert made._process is not None
        async with asyncio.timeout(DEADLINE_S):
            await made._process.wait()
        assert "--end" in started.read_text()

    asyncio.run(story())
    lines = [line for line in started.read_text().splitlines() if line != "--end"]
    assert all(line.startswith("-rw-------") for line in lines), "the order has a key: it is for one user only"
    assert msgspec.json.decode((tmp_path / "engine.json").read_bytes(), type=Order).key == KEY
