"""The configuration: a TOML file, validated once and converted to immutable values. etc/autosched.toml documents every
setting.

Nothing else reads the file: `daemon.main` passes the values on.
"""

import os
import re
from collections.abc import Iterable, Iterator
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from autosched import gpus, user_folders
from autosched.errors import ConfigError, RequestError, in_words
from autosched.gpu_probe import Gpu, Inventory
from autosched.model import (
    DEVICE_POOL,
    HOST_POOL,
    CudaDevice,
    Goal,
    Name,
    Pool,
    RpcServer,
    Unit,
    UnitName,
    is_lane,
    split_address,
)
from autosched.toml_lines import line_of

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

STATE_VARIABLE = "AUTOSCHED_STATE_DIR"
"""Environment variable that names the state folder."""

Cores = Annotated[tuple[Annotated[int, Meta(ge=0, le=65_535)], ...], Meta(max_length=4_096)]
Period = Annotated[float, Meta(gt=0, le=1e9)]
Place = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""A path, or another name for the operating system."""


class DaemonConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """State folder, sockets and TLS of the daemon."""

    state_dir: Place = ""
    socket: Place = ""
    group: Place = ""
    listen: str = ""
    tls_certificate: Place = ""
    tls_key: Place = ""
    keys: Place = ""
    sandbox: Literal["auto", "require", "off"] = "auto"
    idle_exit_s: Period = 60.0


RoleName = Literal["viewer", "user", "operator"]


class ConsoleConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses of the console, and the role of its users."""

    socket: Place = ""
    role: RoleName = "operator"
    listen: str = ""


class ResourcesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Cores of the host's lanes, and the default device."""

    host_cores: Cores | Literal["auto"] = "auto"
    lanes: Annotated[int, Meta(ge=1, le=1_000)] | Literal["auto"] = "auto"
    device_cores: Annotated[int, Meta(ge=1, le=65_536)] | Literal["auto"] = "auto"
    gpus: Literal["auto", "none"] = "auto"
    """Whether the machine's GPUs are devices where the settings list none."""


class DeviceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A device. Without cores, its client may run anywhere while it measures."""

    name: Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f\x7f@]{1,200}$")]
    """Without an @, which precedes the name of a host."""
    kind: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.\-]{0,99}$")]
    cores: Cores = ()
    cuda: Annotated[int, Meta(ge=0, le=1_024)] | Annotated[str, Meta(pattern=r"^GPU-[0-9a-f\-]{8,36}$")] | None = None
    """UUID of a GPU, as nvidia-smi -L prints it, or its beginning; or its number, which another GPU may have after a
    reboot."""
    rpc: Annotated[str, Meta(pattern=r"^$|^(\[[0-9a-fA-F:.]+(%\w+)?\]|[^\s:]{1,253}):[0-9]{1,5}$")] = ""
    """HOST:PORT of a TVM RPC server."""
    rpc_key: Annotated[str, Meta(pattern=r"^\S*$", max_length=200)] = ""
    target: Annotated[str, Meta(max_length=2_000)] = ""
    """Target of jobs for a TVM RPC server that name none."""
    reboot: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(max_length=100)] = ()


class SchedulerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Scheduling policy and time limits."""

    policy: Name = "predictive"
    goal: Goal = Goal.BALANCED
    policy_budget_s: Period = 0.05
    allow_interference: bool = False
    step_timeout_s: Period = 600.0
    attach_timeout_s: Period = 60.0
    host_lease_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0


class LauncherConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The cluster engine that starts agents."""

    kind: Literal["", "dask"] = ""
    """Empty: agents are started by hand, or by a service of their machine."""
    scheduler: str = ""
    """Address of a Dask scheduler."""
    cluster: str = ""
    """File to which a Dask scheduler writes its address."""
    daemon: Annotated[str, Meta(pattern="^$|^(tcp|tls|unix)://?.+")] = ""
    """Address at which agents reach the daemon."""
    key: str = ""
    """File with the key of the agents."""
    agents: Annotated[int, Meta(ge=1, le=1_000)] = 1
    resource: Annotated[str, Meta(max_length=100)] = ""
    """Resource of Dask of which each agent takes one."""
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,50}$")] = "dask"
    """Prefix of the agents' names, before their number."""
    settings: str = ""
    """Settings file of the agents, on the machines of the workers."""


class GuardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Monitoring of devices."""

    sentinel_interval_s: Annotated[float, Meta(ge=0, le=1e9)] = 30.0
    """Seconds between runs of the sentinel; 0: before each step."""
    quarantine_s: Period = 10.0
    reboot_timeout_s: Period = 600.0


class BackupConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Copies of the database."""

    interval_s: Annotated[float, Meta(ge=0, le=1e9)] = 3_600.0
    keep: Annotated[int, Meta(ge=1, le=1_000)] = 6


class RetentionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Ended jobs to prune, once a day."""

    days: Annotated[float, Meta(ge=0, le=100_000)] = 0.0
    keep: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 100
    records: bool = False


class RecordsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The record store."""

    url: Annotated[str, Meta(pattern=r"^(off|sqlite:///.+|postgresql://.+)?$")] = ""
    """Empty: a file in the state folder. "off": no store."""


class HttpConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Address of the page, metrics and health checks."""

    listen: str = "127.0.0.1:0"


class BoardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Boards of one kind that register themselves."""

    kind: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.\-]{0,99}$")]
    target: Annotated[str, Meta(max_length=2_000)] = ""
    """Target of jobs that name none."""
    reboot: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(max_length=100)] = ()


class BoardsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Address at which boards register, and programs of TVM request them."""

    listen: str = ""
    """Empty: no listener."""
    networks: Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=1_000)] = ()
    """Networks that may connect, besides this machine."""


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Level and format of the log on stderr."""

    format: Literal["auto", "text", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits."""

    jobs_active_max: Annotated[int, Meta(ge=1)] = 1_000
    connections_max: Annotated[int, Meta(ge=1)] = 1_000
    user_connections_max: Annotated[int, Meta(ge=1)] = 64
    user_jobs_active_max: Annotated[int, Meta(ge=1)] = 200
    user_changes_per_s: Annotated[float, Meta(gt=0)] = 10.0
    user_upload_bytes_max: Annotated[int, Meta(ge=1)] = 16 * 1024**3
    blob_bytes_max: Annotated[int, Meta(ge=1)] = 8 * 1024**3
    client_bytes_max: Annotated[int, Meta(ge=0)] = 0
    client_tasks_max: Annotated[int, Meta(ge=0)] = 8_192
    cache_bytes_max: Annotated[int, Meta(ge=0)] = 2 * 1024**3


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    daemon: DaemonConfig = DaemonConfig()
    console: ConsoleConfig = ConsoleConfig()
    resources: ResourcesConfig = ResourcesConfig()
    device: Annotated[tuple[DeviceConfig, ...], Meta(max_length=1_000)] = ()
    scheduler: SchedulerConfig = SchedulerConfig()
    launcher: LauncherConfig = LauncherConfig()
    guard: GuardConfig = GuardConfig()
    backup: BackupConfig = BackupConfig()
    retention: RetentionConfig = RetentionConfig()
    records: RecordsConfig = RecordsConfig()
    http: HttpConfig = HttpConfig()
    boards: BoardsConfig = BoardsConfig()
    board: Annotated[tuple[BoardConfig, ...], Meta(max_length=1_000)] = ()
    log: LogConfig = LogConfig()
    limits: LimitsConfig = LimitsConfig()

    @property
    def reboot_hooks(self) -> dict[UnitName, tuple[str, ...]]:
        """Commands that reboot a device, by its name."""
        return {device.name: device.reboot for device in self.device if device.reboot}

    @property
    def state_dir(self) -> Path:
        """Folder of journal, records and files; AUTOSCHED_STATE_DIR or ~/.local/state/autosched by default."""
        if chosen := self._chosen_state_dir:
            return user_folders.expanded(chosen)
        return user_folders.state() / "autosched"

    @property
    def _chosen_state_dir(self) -> str:
        return self.daemon.state_dir or os.environ.get(STATE_VARIABLE, "")

    @property
    def socket(self) -> Path:
        """The daemon's unix socket: in the state folder, unless the settings name another."""
        return user_folders.expanded(self.daemon.socket) if self.daemon.socket else self.state_dir / "api.sock"

    @property
    def console_socket(self) -> Path:
        """The console's unix socket, beside the daemon's."""
        chosen = self.console.socket
        return user_folders.expanded(chosen) if chosen else self.socket.with_name("console.sock")

    def console_listen(self) -> tuple[str, int] | None:
        """Host and port of the console; None without a TCP listener. Raises ConfigError as `listen` does."""
        return self._address("console.listen", self.console.listen) if self.console.listen else None

    def listen(self) -> tuple[str, int] | None:
        """Host and port of the TCP listener; None without one. Raises ConfigError if other machines could reach it
        without TLS."""
        return self._address("daemon.listen", self.daemon.listen) if self.daemon.listen else None

    def http_listen(self) -> tuple[str, int] | None:
        """Host and port of the page; None without a page. Raises ConfigError as `listen` does."""
        return self._address("http.listen", self.http.listen) if self.http.listen else None

    def boards_listen(self) -> tuple[str, int] | None:
        """Host and port at which boards register; None without a listener.

        Raises ConfigError if other machines can reach the address and no networks are listed.
        """
        if not self.boards.listen:
            return None
        host, port = _host_and_port("boards.listen", self.boards.listen)
        if not loopback(host) and not self.board_networks():
            raise ConfigError(
                f"boards.listen is {self.boards.listen!r}, which other machines can reach, and any peer that reaches it"
                ' runs any program on the boards: list allowed networks, as in networks = ["192.168.7.0/24"], or listen'
                " on 127.0.0.1"
            )
        return host, port

    def board_networks(self) -> "list[IPv4Network | IPv6Network]":
        """Networks whose machines may register and request boards. Raises ConfigError."""
        import ipaddress  # imported here, because commands that only need the default paths must start fast

        try:
            return [ipaddress.ip_network(one, strict=False) for one in self.boards.networks]
        except ValueError as error:
            raise ConfigError(f"boards.networks: {error}; write for example 192.168.7.0/24") from None

    def _address(self, setting: str, value: str) -> tuple[str, int]:
        host, port = _host_and_port(setting, value)
        if bool(self.daemon.tls_certificate) != bool(self.daemon.tls_key):
            raise ConfigError("daemon.tls_certificate and daemon.tls_key belong together; set both, or none")
        check_protected(self.daemon, host, f"{setting} is {value!r}")
        return host, port


def _host_and_port(setting: str, value: str) -> tuple[str, int]:
    """Host and port of a setting. Raises ConfigError."""
    host, port = split_address(value)
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{setting} is {value!r}; write host:port, for example 127.0.0.1:0")
    return host, int(port)


def check_protected(daemon: DaemonConfig, host: str, what: str) -> None:
    """Raise ConfigError, which begins with `what`, if other machines could reach this address without TLS."""
    if not loopback(host) and not daemon.tls_certificate:
        raise ConfigError(
            f"{what}, which other machines can reach; that needs TLS and keys: set"
            " daemon.tls_certificate and daemon.tls_key (etc/autosched.toml has a command that makes them), and make"
            " keys with: autosched key new ROLE. Or listen on 127.0.0.1, and use an SSH tunnel"
        )


def loopback(host: str) -> bool:
    """Whether only this machine can reach a host's address."""
    if host in ("127.0.0.1", "::1", "localhost"):
        return True
    import ipaddress  # imported here, because commands that only need the default paths must start fast

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load(path: Path | None) -> Config:
    """Read a configuration file; without one, all defaults. Raises ConfigError with file, line and key."""
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); check the name given with -c") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Config:
    """Validate a configuration text; `where` names it in messages."""
    import tomllib  # imported here, because commands that only need the default paths must start fast

    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise ConfigError(f"{where}:{line[1] if line else len(text.splitlines())}: not valid TOML: {error}") from None
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), text, where)) from None
    names: set[str] = set()
    for index, device in enumerate(config.device):
        if device.name in names or is_lane(device.name):
            line_at = line_of(text, ["device", str(index), "name"])
            raise ConfigError(f"{where}:{line_at}: device.name: {device.name!r} is taken; choose another name")
        names.add(device.name)
    for table, check in (
        ("daemon", config.listen),
        ("http", config.http_listen),
        ("console", config.console_listen),
        ("boards", config.boards_listen),
    ):
        try:
            check()
        except ConfigError as error:
            raise ConfigError(f"{where}:{line_of(text, [table, 'listen'])}: {error}") from None
    try:
        check_policy(config.scheduler)
    except ConfigError as error:
        raise ConfigError(f"{where}:{line_of(text, ['scheduler', 'policy'])}: scheduler.policy: {error}") from None
    return config


def check_policy(scheduler: SchedulerConfig) -> None:
    """Raise ConfigError for a policy that is not installed or not allowed. Policies of other packages are not
    loaded."""
    # Imported here, because commands that only need the default paths must start fast.
    from autosched import policy_registry
    from autosched.core.policies.policy import POLICIES

    try:
        policy_registry.check_name(scheduler.policy)
        if scheduler.policy in POLICIES:
            policy_registry.check_allowed(POLICIES[scheduler.policy], scheduler.allow_interference)
    except RequestError as error:
        raise ConfigError(str(error)) from None


def with_policy(config: Config, policy: str | None, goal: Goal | None) -> Config:
    """The configuration with a policy or goal from the command line. Raises ConfigError."""
    scheduler = msgspec.structs.replace(
        config.scheduler, policy=policy or config.scheduler.policy, goal=goal or config.scheduler.goal
    )
    check_policy(scheduler)
    return msgspec.structs.replace(config, scheduler=scheduler)


def with_device_cores(config: Config, cores: int | None) -> Config:
    """The configuration with a default device of this number of cores. Raises ConfigError if the settings list
    devices."""
    if cores is None:
        return config
    if config.device:
        raise ConfigError(
            "the number of cores is for the device that there is by default, and these settings list devices of their"
            " own: give one of them this number of `cores`, or leave the option out"
        )
    return msgspec.structs.replace(config, resources=msgspec.structs.replace(config.resources, device_cores=cores))


# Resources --------------------------------------------------------------------------------------------------------


class Resources(Struct, frozen=True):
    """The pools of this machine, with warnings about them."""

    pools: tuple[Pool, ...]
    warnings: tuple[str, ...] = ()

    def stay_off_devices(self) -> None:
        """Pin this process, and the clients that it starts, to the cores of the lanes, so that devices are
        undisturbed."""
        lanes = [unit for pool in self.pools if pool.name == HOST_POOL for unit in pool.units]
        if cores := {core for unit in lanes for core in unit.cores}:
            os.sched_setaffinity(0, cores)


def resources(config: Config, usable: Iterable[int] | None = None, there: Inventory | None = None) -> Resources:
    """Host lanes and devices on the usable cores (default: those this process may use). Raises ConfigError.

    By default half of the cores, at least one, are the device "cpu0", and each other core is a host lane. A device of
    all cores is the only host lane, too. `there`: the machine's GPUs, which are devices by default; None: they are
    asked for if the settings list some, and no devices otherwise.
    """
    cores = usable_cores() if usable is None else list(usable)
    if there is None and any(device.cuda is not None for device in config.device):
        there = gpus.inventory()
    there = there or Inventory()
    devices = [_unit(device, there) for device in config.device]
    _check_gpus(devices)
    kinds = [device.kind for device in config.device]
    warnings = [why for gpu in there.gpus if (why := gpus.disturbed(gpu)) and _is_listed(gpu, devices)]
    if not devices:
        devices, kinds = [Unit("cpu0", _default_device(config.resources.device_cores, cores))], ["cpu"]
        if config.resources.gpus == "auto":
            fit = [gpu for gpu in there.gpus if not gpus.unfit(gpu)]
            devices += [_gpu(gpus.unit_of(gpu), gpu) for gpu in fit]
            kinds += map(gpus.kind_of, fit)
            warnings = [why for gpu in there.gpus if (why := gpus.unfit(gpu) or gpus.disturbed(gpu))]
            warnings += there.silent
    taken = {core for unit in devices for core in unit.cores}
    host = config.resources.host_cores
    if host == "auto":
        host = tuple(core for core in cores if core not in taken)
    if host:
        lanes = _lanes(host, config.resources.lanes)
        _check(devices + lanes, cores)
    else:
        shared = next((unit for unit in devices if unit.cores), None)
        if shared is None:
            raise ConfigError("resources.host_cores is empty and no device has cores: name cores for the host lanes")
        lanes = [shared]
        _check(devices, cores)
        warnings.append(
            f"no core is left for a host lane, so {shared.name} is lane and device at once: builds and measurements"
            " take turns"
        )
    pools: dict[str, list[Unit]] = {HOST_POOL: lanes}
    for unit, kind in zip(devices, kinds, strict=True):
        pools.setdefault(DEVICE_POOL + kind, []).append(unit)
    return Resources(tuple(Pool(name, tuple(units)) for name, units in pools.items()), tuple(warnings))


def _unit(device: DeviceConfig, there: Inventory) -> Unit:
    """A device of the settings. Raises ConfigError."""
    said = {"cores": bool(device.cores), "cuda": device.cuda is not None, "rpc": bool(device.rpc)}
    if sum(said.values()) > 1:
        names = " and ".join(name for name, there in said.items() if there)
        raise ConfigError(f"the device {device.name} has {names}: a device is one of these; keep one")
    if device.cuda is not None:
        return _gpu(device.name, _chosen(device, there))
    if device.rpc:
        return Unit(device.name, accelerator=RpcServer(device.rpc, device.rpc_key, device.target))
    if device.target:
        raise ConfigError(
            f"the device {device.name} has a target, which is for TVM RPC servers (rpc = ...) alone: leave it out"
        )
    return Unit(device.name, device.cores)


def _gpu(name: str, gpu: Gpu) -> Unit:
    return Unit(name, accelerator=CudaDevice(gpu.uuid, gpu.arch), model=gpu.name)


def _check_gpus(devices: list[Unit]) -> None:
    """Raise ConfigError where two devices are the same GPU."""
    owner: dict[str, str] = {}
    for unit in devices:
        if not isinstance(unit.accelerator, CudaDevice):
            continue
        uuid = unit.accelerator.uuid
        if uuid in owner:
            raise ConfigError(
                f"{owner[uuid]} and {unit.name} are the same GPU, {uuid}: measurements on one would disturb those on"
                " the other; leave out one of them"
            )
        owner[uuid] = unit.name


def _is_listed(gpu: Gpu, devices: list[Unit]) -> bool:
    return any(isinstance(unit.accelerator, CudaDevice) and unit.accelerator.uuid == gpu.uuid for unit in devices)


def _chosen(device: DeviceConfig, there: Inventory) -> Gpu:
    """The GPU that the settings name. Raises ConfigError."""
    wanted = device.cuda
    found = [
        gpu for number, gpu in enumerate(there.gpus)
        if number == wanted or (isinstance(wanted, str) and gpu.uuid.startswith(wanted))
    ]  # fmt: skip
    if len(found) != 1:
        listed = "; ".join(f"{number}: {gpu.name}, {gpu.uuid}" for number, gpu in enumerate(there.gpus))
        what = "is not here" if not found else f"is the beginning of {len(found)} UUIDs"
        raise ConfigError(
            f"the device {device.name} is the GPU {wanted}, which {what}. This machine has:"
            f" {'; '.join(filter(None, (listed, *there.silent))) or there.trouble or 'no GPUs'}"
        )
    if why := gpus.unfit(found[0]):
        raise ConfigError(f"the device {device.name} cannot be used: {why}")
    return found[0]


def _default_device(count: int | str, cores: list[int]) -> tuple[int, ...]:
    """The cores of the default device: the last ones, so that core 0 stays with the host."""
    if isinstance(count, str):
        count = max(1, len(cores) // 2)
    if count > len(cores):
        raise ConfigError(
            f"resources.device_cores is {count}, but this process may use {len(cores)} cores: {sorted(cores)}. Give"
            f" {len(cores)} or fewer"
        )
    return tuple(sorted(cores[-count:]))


def _lanes(cores: tuple[int, ...], lanes: int | str) -> list[Unit]:
    count = len(cores) if isinstance(lanes, str) else lanes
    if count > len(cores):
        raise ConfigError(f"resources.lanes is {count}, but only {len(cores)} cores are left for the host: {cores}")
    return [Unit(f"{HOST_POOL}/{lane}", tuple(sorted(cores[lane::count]))) for lane in range(count)]


def _check(units: list[Unit], usable: list[int]) -> None:
    owner: dict[int, str] = {}
    for unit in units:
        for core in unit.cores:
            if core not in usable:
                raise ConfigError(f"{unit.name} names core {core}; this process may use {sorted(usable)}")
            if owner.get(core) == unit.name:
                raise ConfigError(f"{unit.name} names core {core} twice; leave out one of them")
            if core in owner:
                raise ConfigError(
                    f"{unit.name} and {owner[core]} both own core {core}: what runs on one would disturb the"
                    " measurements on the other; give each its own cores"
                )
            owner[core] = unit.name


def usable_cores() -> list[int]:
    """Cores this process may run on, those of one physical core next to each other."""
    return sorted(os.sched_getaffinity(0), key=lambda core: (_first_sibling(core), core))


def _first_sibling(core: int) -> int:
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        return int(re.split("[,-]", path.read_text())[0])
    except (OSError, ValueError):
        return core


# Messages ---------------------------------------------------------------------------------------------------------


def _explain(error: str, text: str, where: str) -> str:
    """Explain an error of msgspec, such as "Expected `int`, got `str` - at `$.device[0].cores`"."""
    import difflib

    what, _, at = error.partition(" - at `$")
    path = re.findall(r"[^.\[\]`]+", at)
    if unknown := re.search(r"unknown field `(.*)`", what):
        key = unknown[1]
        valid = [field.name for field in _fields(Config, path)]
        near = difflib.get_close_matches(key, valid, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(valid)}"
        path, what = [*path, key], f"no such setting; {hint}"
    elif lacking := re.fullmatch("Object missing required field `(.*)`", what):
        what = f"{lacking[1]!r} is missing; each [[device]] has a name and a kind"
    elif what.startswith("Invalid enum value"):
        kind = next(f.type for f in _fields(Config, path[:-1]) if f.name == path[-1])
        what += f"; choose from: {', '.join(_choices(kind))}"
    what = in_words(what, _KINDS)
    if path == ["device"] and "got" in what:
        what += "; write [[device]], in two pairs of brackets"
    dotted = ".".join(part for part in path if not part.isdecimal())
    return f"{where}:{line_of(text, path)}: {dotted or 'the file'}: {what}"


_KINDS = {
    "object": "a table", "array": "a list", "str": "text in quotes", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "null", "datetime": "datetime", "date": "date", "time": "time",
}  # fmt: skip
"""Names of types in TOML."""


def _fields(kind: Any, path: list[str]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The settings below a path."""
    if path:
        kind = {field.name: field.type for field in msgspec.structs.fields(kind)}[path[0]]
        kind = DeviceConfig if path[0] == "device" else kind
    return msgspec.structs.fields(kind)


def _choices(kind: Any) -> Iterator[str]:
    """The allowed words of a setting of this type."""
    if isinstance(kind, EnumType):
        yield from kind
    for part in get_args(kind):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)
