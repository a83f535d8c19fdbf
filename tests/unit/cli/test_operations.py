"""drain, undrain and free: their requests to the daemon, and their output."""

from collections.abc import Callable

import pytest
from msgspec import Struct

from autosched.errors import NotFound
from autosched.protocol import (
    Done,
    DrainUnit,
    FreeUnit,
    ListDevices,
    Method,
    Reload,
    Reloaded,
    ReturnUnit,
    SettingChange,
    UnitList,
    UnitView,
)
from fake import Said

IDLE = UnitView("host/0", ("host",), (0,), "drained", drained="it is cleaned (uid 1)")
BUSY = UnitView("cpu0", ("device:cpu",), (1,), "busy", job=3, task=1, stage="profile", held_s=240.0, left_s=60.0)


class Asked:
    """The daemon that a command talks to, without devices."""

    def __init__(self) -> None:
        self.methods: list[Method] = []

    async def answer(self, method: Method) -> Struct:
        if isinstance(method, ListDevices):
            return UnitList((IDLE, BUSY))
        if isinstance(method, Reload):
            at_once, later = (
                SettingChange("guard.repeat", "3", "5", restart=False),
                SettingChange("http.listen", "a", "b", restart=True),
            )
            return Reloaded("autosched.toml", (at_once, later))
        self.methods.append(method)
        if getattr(method, "unit", "") == "gpu9":
            raise NotFound("there is no unit 'gpu9'; there are: host/0, cpu0")
        return Done()


@pytest.fixture
def fake() -> Asked:
    return Asked()


def test_drain_reports_running_steps(command: Callable[..., Said], fake: Asked) -> None:
    code, _, err = command("drain", "cpu0", "--reason", "the fan is broken")
    assert (code, fake.methods) == (0, [DrainUnit(unit="cpu0", reason="the fan is broken")])
    assert "cpu0 gets no more steps; job 3 profile runs on it for 1m00s at most" in err
    code, _, err = command("drain", "host/0", "--reason", "dust")
    assert "host/0 gets no more steps. Give it steps again:  autosched undrain host/0" in err


def test_drain_needs_a_reason(command: Callable[..., Said], fake: Asked) -> None:
    code, _, err = command("drain", "cpu0")
    assert (code, fake.methods) == (2, [])
    assert "--reason" in err


def test_undrain_returns_a_unit(command: Callable[..., Said], fake: Asked) -> None:
    code, _, err = command("undrain", "cpu0")
    assert (code, fake.methods, err) == (0, [ReturnUnit(unit="cpu0")], "cpu0 gets steps again.\n")


def test_free_needs_confirmation(command: Callable[..., Said], fake: Asked) -> None:
    code, _, err = command("free", "cpu0")
    assert (code, fake.methods) == (5, [])
    assert "cpu0 is held by job 3, profile, for 4m00s" in err
    assert "autosched free cpu0 --force" in err
    assert command("free", "host/0")[::2] == (0, "nothing holds host/0. See:  autosched devices\n")
    code, _, err = command("free", "cpu0", "--force")
    assert (code, fake.methods) == (0, [FreeUnit(unit="cpu0")])


def test_an_unknown_unit_is_reported(command: Callable[..., Said]) -> None:
    code, _, err = command("undrain", "gpu9")
    assert (code, err) == (4, "autosched: there is no unit 'gpu9'; there are: host/0, cpu0\n")


def test_devices_shows_why_a_device_gets_no_steps(command: Callable[..., Said]) -> None:
    code, out, _ = command("devices")
    assert code == 0
    assert " host/0: drained, it is cleaned (uid 1)" in out.splitlines()
    assert any(line.split()[:3] == ["host/0", "host", "drained"] for line in out.splitlines())


def test_a_changed_setting_says_when_it_takes_effect(command: Callable[..., Said], fake: Asked) -> None:
    code, out, _ = command("reload", "--check")
    assert code == 0
    assert out.splitlines() == [" guard.repeat  3 -> 5", " http.listen  a -> b  needs a restart"]
