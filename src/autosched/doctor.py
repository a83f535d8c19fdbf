"""Checks this machine's fitness for tuning: findings that are fine, not ideal or broken, with fixes."""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from autosched import backend, config, device_types, formatting, gpu_probe, gpus, machine
from autosched.api import daemon_address
from autosched.api.connection import Daemon
from autosched.api.tvm_programs import INSTALLATION_CHECK, MISSING
from autosched.cuda_libraries import INSTALL
from autosched.errors import AutoschedError, DaemonUnreachable
from autosched.launch import sandbox
from autosched.model import DEFAULT_BACKEND, DEVICE_POOL, RpcServer
from autosched.process import json_command
from autosched.text import tables
from autosched_runtime.control_groups import cpu_quota

PROBE_S = 180.0
DISK_LOW_BYTES, DISK_NEEDED_BYTES = 5 * 1024**3, 512 * 1024**2
LOAD_SAMPLE_S = 1.0
LOAD_BAD = 0.25
"""Share of the machine that other programs may use before measurements suffer."""
UNKNOWN_INSTRUCTION = (
    "this CPU, or its hypervisor, lacks an instruction that the program uses. autosched runs on x86-64-v2 and newer,"
    " and on 64-bit Arm; give the virtual machine its host's CPU, or tune on another machine"
)
REINSTALL = "pip install --force-reinstall -c etc/constraints.txt 'autosched[tvm]'"
TRYING = "trying: "  # prefix of the probe's message before each check

State = Literal["ok", "warning", "broken"]


class Finding(Struct, frozen=True):
    """A checked property, with the result."""

    state: State
    what: str
    fix: str = ""


async def examine(host: str | None, target: str = "") -> AsyncIterator[Finding]:
    """All findings, quick checks first; or those of a target or a kind of boards."""
    if target:
        if device_types.target_kind(target) in device_types.CUDA_KINDS:
            for finding in _gpu_parts():
                yield finding
            return
        found, target = await _boards(host, target)
        for finding in found:
            yield finding
        for finding in await _tvm(target) if target else ():
            yield finding
        return
    for check in (_compiler, _state_dir, _apart, _resources, _gpus, _governor, _foreign_load, _backends):
        for finding in check():
            yield finding
    for finding in await _daemon(host):
        yield finding
    for finding in await _tvm():
        yield finding


def _compiler() -> Iterator[Finding]:
    from autosched_tvm.api import toolchain

    for variable in ("CXX", "CC"):
        if (named := os.environ.get(variable)) and shutil.which(named) is None:
            fix = f"unset {variable}, or set it to a compiler that is there"
            yield Finding("warning", f"{variable} is {named!r}, which is not on PATH", fix)
    try:
        yield Finding("ok", f"linker {toolchain.linker()[0]}")
    except AutoschedError as error:
        yield Finding("broken", str(error), "apt-get install gcc libc6-dev")


def _apart() -> Iterator[Finding]:
    if why := sandbox.unavailable():
        yield Finding("ok", f"jobs of other users would run as the daemon's own user: {why}")
    else:
        yield Finding("ok", "jobs of other users run apart, in bubblewrap")


def _state_dir() -> Iterator[Finding]:
    folder = config.Config().state_dir
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    fix = "choose another place: XDG_STATE_HOME=/path, or daemon.state_dir in the configuration"
    try:
        with tempfile.NamedTemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Finding("broken", f"the state folder {folder} cannot be written: {error.strerror}", fix)
        return
    if machine.executable(existing):
        yield Finding("ok", f"state folder {folder}")
    else:
        yield Finding("broken", f"files in the state folder {folder} may not be executed (noexec): no kernel runs", fix)
    free = shutil.disk_usage(existing).free
    if free < DISK_NEEDED_BYTES:
        yield Finding(
            "broken", f"only {formatting.size(free)} of disk are free in {existing}", "make room, 5 GiB or more"
        )
    elif free < DISK_LOW_BYTES:
        yield Finding(
            "warning", f"only {formatting.size(free)} of disk are free in {existing}", "make room, 5 GiB or more"
        )
    else:
        yield Finding("ok", f"{formatting.size(free)} of disk are free")


def _resources() -> Iterator[Finding]:
    try:
        found = config.resources(config.Config())
    except AutoschedError as error:
        yield Finding("broken", str(error))
        return
    for pool in found.pools:
        cores = sorted({core for unit in pool.units for core in unit.cores})
        names = ", ".join(unit.name for unit in pool.units)
        yield Finding(
            "ok", f"{pool.name}: {names} on {'cores' if len(cores) > 1 else 'core'} {', '.join(map(str, cores))}"
        )
    if (quota := cpu_quota()) < len(config.usable_cores()):
        yield Finding(
            "warning", f"a control group limits this process to {quota:g} cores' time (cpu.max): builds wait, and"
            " measurements are disturbed while it is throttled", "lift the limit, or give whole cores instead (cpuset)"
        )  # fmt: skip
    for warning in found.warnings:
        yield Finding("warning", warning, "give this machine, or this container, two cores or more")


def _gpus() -> Iterator[Finding]:
    """Says nothing where the package that asks for GPUs is not installed."""
    if not gpus.installed():
        return
    there = gpus.inventory()
    if there.trouble:
        yield Finding("ok", f"no GPUs: {there.trouble}")
    for silent in there.silent:
        yield Finding("warning", silent)
    for gpu in there.gpus:
        arch = f"compute capability {gpu.arch // 10}.{gpu.arch % 10}"
        told = f"{gpus.kind_of(gpu)}: {gpu.name}, {arch}, {formatting.size(gpu.memory_bytes)}, {gpu.uuid}"
        if why := gpus.unfit(gpu) or gpus.disturbed(gpu):
            yield Finding("warning", f"{told}. {why[0].upper()}{why[1:]}")
        else:
            yield Finding("ok", told)


def _gpu_parts() -> Iterator[Finding]:
    """Each part that tuning for GPUs needs."""
    if gpus.installed():
        yield Finding("ok", f"{gpu_probe.NVML_PACKAGE}, which asks for GPUs")
    else:
        missing = f"{gpu_probe.NVML_PACKAGE}, which asks for GPUs, is missing"
        yield Finding("broken", missing, INSTALL)
    for part in gpus.parts():
        yield Finding("ok" if part.there else "broken", part.what, part.fix)
    found = list(_gpus())
    if not any(finding.state == "ok" and "no GPUs" not in finding.what for finding in found):
        yield Finding("broken", "no GPU of this machine can be a device", "see what is said of each, or of the driver")
    yield from found


def _governor() -> Iterator[Finding]:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        governor = path.read_text().strip()
    except OSError:
        return  # virtual machines have none
    if governor == "performance":
        yield Finding("ok", "CPU governor performance")
    else:
        fix = "cpupower frequency-set -g performance"
        yield Finding("warning", f"CPU governor is {governor!r}: the clock changes under a measurement", fix)


def _foreign_load() -> Iterator[Finding]:
    import psutil

    used = psutil.cpu_percent(interval=LOAD_SAMPLE_S) / 100
    if used <= LOAD_BAD:
        yield Finding("ok", f"other processes use {100 * used:.0f} % of this machine")
        return
    fix = "stop them, or expect noise (top shows who; a daemon that tunes counts)"
    yield Finding("warning", f"other processes use {100 * used:.0f} % of this machine", fix)


def _backends() -> Iterator[Finding]:
    names = list(backend.available())
    if DEFAULT_BACKEND in names:
        yield Finding("ok", f"backends: {', '.join(names)}")
    else:
        there = ", ".join(names) or "none"
        yield Finding(
            "broken", f"the backend {DEFAULT_BACKEND} is not installed (there: {there})", "pip install 'autosched[tvm]'"
        )


async def _daemon(host: str | None) -> list[Finding]:
    where = daemon_address.named(host) or daemon_address.default()
    try:
        daemon = await Daemon.connect(where)
    except DaemonUnreachable as error:
        if daemon_address.named(host) is not None:
            return [Finding("broken", str(error))]
        return [Finding("ok", "no daemon runs; `autosched tune` starts one, `autosched serve` keeps one")]
    try:
        info, lab = await daemon.info(), await daemon.units()
    finally:
        daemon.close()
    running = formatting.count(info.jobs_active, "active job")
    said = [Finding("ok", f"daemon {info.version}, process {info.pid}, {running}, {formatting.size(info.rss_bytes)}")]
    said += [Finding("warning", warning) for warning in info.warnings]
    away = [unit for unit in lab if unit.drained]
    return said + [
        Finding("warning", f"{unit.unit}: {tables.drained(unit)}", f"autosched device log {unit.unit}") for unit in away
    ]


async def _boards(host: str | None, target: str) -> tuple[list[Finding], str]:
    """Findings about the boards of a kind, and their target. `target`: such a kind, or a target itself."""
    try:
        daemon = await Daemon.connect(daemon_address.named(host) or daemon_address.default())
    except DaemonUnreachable:
        return [], target
    try:
        lab = await daemon.lab()
    finally:
        daemon.close()
    pool = DEVICE_POOL + target
    boards = {unit.unit: unit.accelerator for unit in lab.units if pool in unit.pools}
    servers = {name: server for name, server in boards.items() if isinstance(server, RpcServer)}
    gone = [board for board in lab.gone if board.kind == target]
    found = [Finding("ok", f"{name} is there, at {server.address}") for name, server in servers.items()]
    found += [Finding("warning", f"{board.unit} is gone: {board.reason}", "start its server") for board in gone]
    if not found:
        return [], target
    named = next((server.target for server in servers.values()), "")
    if not named:
        fix = f"write it into the daemon's settings, as in: target = '{device_types.BOARD_TARGET}'"
        found.append(Finding("warning", f"what the boards of the kind {target} run is not known", fix))
    return found, named


async def _tvm(target: str = "") -> list[Finding]:
    """Check in a child process that TVM imports, compiles, links, runs and searches, with matching versions; or that it
    builds for a target."""
    try:
        ended = await json_command.run(INSTALLATION_CHECK, [target] if target else [], timeout_s=PROBE_S)
    except AutoschedError as error:
        return [Finding("broken", str(error), REINSTALL)]
    answers = json_command.objects(ended.out)
    if answers:
        return [_read(part) for part in answers[-1].get("findings", [])]
    tried = [line.removeprefix(TRYING) for line in ended.err.splitlines() if line.startswith(TRYING)]
    if not tried:
        return [Finding("broken", str(json_command.died(INSTALLATION_CHECK, ended, MISSING)), REINSTALL)]
    fix = UNKNOWN_INSTRUCTION if ended.code == -signal.SIGILL else REINSTALL
    return [Finding("broken", f"TVM, {tried[-1]}: its process {ended.how}", fix)]


def _read(part: dict[str, Any]) -> Finding:
    state: State = part["state"] if part["state"] in ("ok", "warning") else "broken"
    return Finding(state, str(part["what"]), str(part.get("fix", "")))
