"""Reloads the settings of a running daemon: reads and compares the file, applies changes, reverts unconfirmed ones.

Settings that cannot change at run time (sockets, devices, timeouts of jobs) are listed and apply after the next
restart, which costs no running step.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec

from autosched.config import Config
from autosched.daemon.runtime import spawn
from autosched.errors import Refused
from autosched.protocol import Done, Reload, Reloaded, SettingChange

log = logging.getLogger(__name__)

AT_ONCE = (
    "scheduler.policy", "scheduler.goal", "scheduler.allow_interference", "guard.sentinel_interval_s",
    "backup.interval_s", "backup.keep", "retention.days", "retention.keep", "retention.records",
    "limits.jobs_active_max", "limits.connections_max", "limits.user_connections_max",
    "limits.user_jobs_active_max", "limits.user_changes_per_s", "limits.user_upload_bytes_max", "limits.blob_bytes_max",
    "limits.client_bytes_max", "limits.client_tasks_max", "limits.cache_bytes_max", "daemon.idle_exit_s",
)  # fmt: skip
"""Settings that change without a restart."""

PASSWORD_IN_URL = re.compile(r"(://[^/@:]*):[^/@]*@")

Apply = Callable[[Config, Config], Awaitable[None]]
"""Applies the first settings in place of the second ones."""


class LiveSettings:
    """The current settings and their file."""

    def __init__(self, now: Config, read: Callable[[], Config] | None = None, file: Path | None = None) -> None:
        """`read`: reads the file; None without a file."""
        self.now = now
        self.apply: Apply | None = None
        """Set by `compose`."""
        self._read, self.file = read, file
        self._undo: asyncio.TimerHandle | None = None
        self._before: Config | None = None

    async def reload(self, method: Reload) -> Reloaded:
        """Read and compare the file; apply it unless `check`. Raises ConfigError for an invalid file, and Refused."""
        if self._read is None:
            raise Refused("this daemon was started without a file of settings: autosched serve -c FILE")
        wanted = await asyncio.to_thread(self._read)
        changes = tuple(differences(self.now, wanted))
        if method.check or not changes:
            return Reloaded(str(self.file), changes)
        before = self._before or self.now  # unconfirmed changes are reverted together
        await self._make(merged(self.now, wanted))
        self._forget()
        if method.timeout_s is not None:
            self._before = before
            self._undo = asyncio.get_running_loop().call_later(method.timeout_s, self._revert)
        return Reloaded(str(self.file), changes, method.timeout_s)

    def confirm(self) -> Done:
        """Confirm the changes. Raises Refused if there are none to confirm."""
        if self._before is None:
            raise Refused(
                "nothing is to be confirmed: no reload with a timeout is under way."
                " Begin one:  autosched reload --timeout 2m"
            )
        self._forget()
        return Done()

    async def _make(self, config: Config) -> None:
        assert self.apply is not None
        before, self.now = self.now, config
        try:
            await self.apply(config, before)
        except BaseException:
            self.now = before
            raise
        log.info("settings: %s", ", ".join(f"{c.name} {c.old} -> {c.new}" for c in differences(before, config)))

    def _forget(self) -> None:
        if self._undo is not None:
            self._undo.cancel()
        self._undo = self._before = None

    def _revert(self) -> None:
        before, self._undo, self._before = self._before, None, None
        if before is not None:
            log.warning("the settings are as they were: the reload was not confirmed")
            spawn(self._make(before), "undoing a reload")


def differences(now: Config, wanted: Config) -> Iterator[SettingChange]:
    """The settings that differ."""
    for section in Config.__struct_fields__:
        old, new = getattr(now, section), getattr(wanted, section)
        if isinstance(old, tuple):
            if old != new:
                yield SettingChange(section, _words(old), _words(new), True)
            continue
        for key in old.__struct_fields__:
            if (a := getattr(old, key)) != (b := getattr(new, key)):
                name = f"{section}.{key}"
                yield SettingChange(name, _words(a), _words(b), name not in AT_ONCE)


def merged(now: Config, wanted: Config) -> Config:
    """The current settings with the wanted values of those that can change at run time."""
    made = now
    for name in AT_ONCE:
        section, _, key = name.partition(".")
        part = msgspec.structs.replace(getattr(made, section), **{key: getattr(getattr(wanted, section), key)})
        made = msgspec.structs.replace(made, **{section: part})
    return made


def _words(value: object) -> str:
    text = value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
    return PASSWORD_IN_URL.sub(r"\1:***@", text)
