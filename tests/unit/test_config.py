"""The configuration: the reference file against the code, and error messages that name the line to change."""

import os
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from autosched import config
from autosched.config import BoardConfig, Config, DeviceConfig, ResourcesConfig
from autosched.errors import ConfigError
from autosched.gpu_probe import Gpu, Inventory
from autosched.model import CpuCores, CudaDevice, Goal, RpcServer, Unit

REFERENCE = Path(__file__).parents[2] / "etc" / "autosched.toml"


def fields(kind: object) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]  # type: ignore[arg-type]


# The reference file --------------------------------------------------------------------------------------------------


def test_the_reference_file_is_exactly_the_defaults() -> None:
    assert config.load(REFERENCE) == Config()


def test_the_reference_file_names_every_setting_with_a_comment() -> None:
    text = REFERENCE.read_text()
    raw = tomllib.loads(text)
    for section in msgspec.structs.fields(Config):
        if section.name not in ("device", "board"):
            assert list(raw[section.name]) == fields(section.type)
    example = text[text.index("# [[device]]") :].split("\n\n")[0]
    assert re.findall(r"^# (\w+) = ", example, re.MULTILINE) == fields(DeviceConfig)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+ = ", line):
            assert lines[number - 1].startswith("# "), f"{line!r} has no comment"


def test_the_example_of_a_device_can_be_used() -> None:
    text = REFERENCE.read_text()
    example = "\n".join(line.removeprefix("# ") for line in text[text.index("# [[device]]") :].splitlines()[:4])
    assert config.parse(example, "x").device == (DeviceConfig("cpu0", "cpu", (1,)),)


def test_the_example_of_a_kind_of_boards_can_be_used() -> None:
    text = REFERENCE.read_text()
    example = text[text.index("# [[board]]") :].split("\n\n")[0].replace("# ", "")
    (board,) = config.parse(example, "x").board
    assert fields(BoardConfig) == re.findall(r"^(\w+) = ", example, re.MULTILINE)
    assert board.kind == "pi4"


def test_boards_come_from_this_machine_unless_networks_are_listed() -> None:
    assert Config().boards_listen() is None
    local = config.parse('[boards]\nlisten = "127.0.0.1:9190"', "x")
    assert (local.boards_listen(), local.board_networks()) == (("127.0.0.1", 9190), [])
    lab = config.parse('[boards]\nlisten = "0.0.0.0:9190"\nnetworks = ["192.168.7.1/24"]', "x")
    assert [str(one) for one in lab.board_networks()] == ["192.168.7.0/24"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('listen = "0.0.0.0:9190"', "list allowed networks"),
        ('listen = "lab:9190"', "list allowed networks"),
        ('listen = "0.0.0.0:9190"\nnetworks = ["lab"]', "boards.networks: 'lab'"),
        ('listen = "9190"', "write host:port"),
    ],
)
def test_a_port_for_boards_that_all_can_reach_is_refused(lines: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"f.toml:2: .*{re.escape(said)}"):
        config.parse(f"[boards]\n{lines}", "f.toml")


# Mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[daemon]\n\nsockte = 'x'", "f.toml:3: daemon.sockte: no such setting; did you mean 'socket'?"),
        ("[deamon]\nsocket = 'x'", "f.toml:1: deamon: no such setting; did you mean 'daemon'?"),
        (
            "colour = 1",
            "f.toml:1: colour: no such setting; there are: daemon, console, resources, device, scheduler, launcher,",
        ),
        ("[scheduler]\npolicy = 'random'", "f.toml:2: scheduler.policy: no policy is named 'random'; there are: "),
        ("[scheduler]\n\npolicy = 'synchronous'", "f.toml:3: scheduler.policy: under 'synchronous' steps share a unit"),
        (
            "[scheduler]\ngoal = 'fun'",
            "f.toml:2: scheduler.goal: Invalid enum value 'fun'; choose from: balanced, makespan,",
        ),
        ("[scheduler]\npolicy_budget_s = 0", "f.toml:2: scheduler.policy_budget_s: Expected a number > 0"),
        (
            "[daemon]\nstate_dir = 'x'\nidle_exit_s = '5'",
            "f.toml:3: daemon.idle_exit_s: Expected a number, got text in quotes",
        ),
        ("[daemon]\nidle_exit_s = 0", "f.toml:2: daemon.idle_exit_s: Expected a number > 0"),
        ("[daemon]\nidle_exit_s = nan", "f.toml:2: daemon.idle_exit_s: Expected a number"),
        ("[resources]\nlanes = 0", "f.toml:2: resources.lanes: Expected a whole number >= 1"),
        ("[[device]]\nname = 'a'\nkind = 'cpu'\n[[device]]\nname = 'b'\nkind = 'C P'", "f.toml:6: device.kind:"),
        ("[[device]]\nname = 'a'\nkind = 'cpu'\n[[device]]\nname = 'b'\nkin = 'cpu'", "f.toml:6: device.kin: no such"),
        (
            "[[device]]\nname = 'a'\nkind = 'cpu'\n\n[[device]]\nkind = 'cpu'",
            "f.toml:5: device: 'name' is missing; each [[device]]",
        ),
        (
            "[[device]]\nname = 'a'\nkind = 'x'\n[[device]]\nname = 'a'\nkind = 'x'",
            "f.toml:5: device.name: 'a' is taken",
        ),
        ("[[device]]\nname = 'host/0'\nkind = 'x'", "f.toml:2: device.name: 'host/0' is taken"),
        ("[daemon]\nlisten = '0.0.0.0:7000'", "f.toml:2: daemon.listen is '0.0.0.0:7000', which other machines can"),
        ("[daemon]\nlisten = '0.0.0.0:1'\ntls_key = 'x'", "f.toml:2: daemon.tls_certificate and daemon.tls_key belong"),
        ("[daemon]\nlisten = 'here'", "f.toml:2: daemon.listen is 'here'; write host:port"),
        ("[daemon]\nlisten = '127.0.0.1:70000'", "f.toml:2: daemon.listen is"),
        ("[daemon]\n\n\nlisten 5", "f.toml:4: not valid TOML"),
        ("[device]\nname = 'a'\nkind = 'cpu'", "f.toml:1: device: Expected a list, got a table; write [[device]]"),
        ("[resources]\nlanes = []", "lanes: Expected a whole number or text in quotes, got a list"),
        ('[daemon]\nstate_dir = "a\\u0000b"', "f.toml:2: daemon.state_dir: Expected text in quotes matching"),
        ("[[device]]\nname = 'a b'\nkind = 'cpu'", "f.toml:2: device.name: Expected text in quotes matching"),
        ("daemon = 5", "f.toml:1: daemon: Expected a table, got a whole number"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f.toml")
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        config.load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("lab7", False)],
)  # fmt: skip
def test_what_only_this_machine_reaches(host: str, here: bool) -> None:
    assert config.loopback(host) is here


def test_others_may_reach_it_with_tls() -> None:
    made = config.parse("[daemon]\nlisten = '0.0.0.0:7433'\ntls_certificate = 'c'\ntls_key = 'k'", "f.toml")
    assert made.listen() == ("0.0.0.0", 7433)


def test_interference_must_be_allowed_in_so_many_words() -> None:
    made = config.parse("[scheduler]\npolicy = 'synchronous'\nallow_interference = true", "f.toml")
    assert made.scheduler.policy == "synchronous"


def test_the_command_line_goes_before_the_file() -> None:
    made = config.parse("[scheduler]\npolicy = 'sequential'\ngoal = 'latency'\nstep_timeout_s = 5", "f.toml")
    assert config.with_policy(made, None, None) == made
    changed = config.with_policy(made, "interleaved", Goal.MAKESPAN).scheduler
    assert (changed.policy, changed.goal, changed.step_timeout_s) == ("interleaved", Goal.MAKESPAN, 5.0)
    with pytest.raises(ConfigError, match="no policy is named 'random'"):
        config.with_policy(made, "random", None)
    with pytest.raises(ConfigError, match="allow_interference = true"):
        config.with_policy(made, "synchronous", None)


# Paths ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("AUTOSCHED_STATE_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    return monkeypatch


def paths(settings: Config) -> tuple[str, str]:
    return str(settings.state_dir), str(settings.socket)


def test_paths_follow_the_environment(no_environment: pytest.MonkeyPatch) -> None:
    assert paths(Config()) == ("/home/me/.local/state/autosched", "/home/me/.local/state/autosched/api.sock")
    no_environment.setenv("XDG_RUNTIME_DIR", "/run/user/5")  # removed at a logout, and another user's after su
    no_environment.setenv("XDG_STATE_HOME", "/state")
    assert paths(Config()) == ("/state/autosched", "/state/autosched/api.sock")
    no_environment.setenv("AUTOSCHED_STATE_DIR", "/lab")
    assert paths(Config()) == ("/lab", "/lab/api.sock")


def test_a_chosen_state_folder_holds_its_own_socket(no_environment: pytest.MonkeyPatch) -> None:
    no_environment.setenv("XDG_RUNTIME_DIR", "/run/user/5")
    assert paths(config.parse("[daemon]\nstate_dir = '~/lab'", "f")) == ("/home/me/lab", "/home/me/lab/api.sock")
    assert paths(config.parse("[daemon]\nsocket = '/s'", "f"))[1] == "/s"


# Resources -----------------------------------------------------------------------------------------------------------


def cores(settings: Config, count: int) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    made = config.resources(settings, range(count))
    return {pool.name: [(unit.name, unit.cores) for unit in pool.units] for pool in made.pools}


@pytest.mark.parametrize(
    ("count", "lanes", "device"),
    [(2, 1, (1,)), (3, 2, (2,)), (4, 2, (2, 3)), (8, 4, (4, 5, 6, 7))],
)
def test_half_of_the_cores_are_the_device_and_each_other_is_a_lane(
    count: int, lanes: int, device: tuple[int, ...]
) -> None:
    assert cores(Config(), count) == {
        "host": [(f"host/{lane}", (lane,)) for lane in range(lanes)],
        "device:cpu": [("cpu0", device)],
    }


def test_a_single_core_is_one_unit_in_both_pools_and_that_is_said() -> None:
    made = config.resources(Config(), [3])
    assert [pool.units for pool in made.pools] == [(Unit("cpu0", (3,)),)] * 2
    assert "builds and measurements take turns" in made.warnings[0]
    assert config.resources(Config(), [3, 4]).warnings == ()


def test_default_device_takes_the_number_of_cores_that_is_asked_for() -> None:
    assert cores(config.with_device_cores(Config(), 3), 4) == {
        "host": [("host/0", (0,))],
        "device:cpu": [("cpu0", (1, 2, 3))],
    }
    assert config.with_device_cores(Config(), None) == Config()


def test_device_of_all_cores_is_the_only_host_lane() -> None:
    whole = config.resources(config.with_device_cores(Config(), 2), range(2))
    assert [pool.units for pool in whole.pools] == [(Unit("cpu0", (0, 1)),)] * 2


def test_impossible_numbers_of_device_cores_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"device_cores is 3, but this process may use 2 cores"):
        cores(config.with_device_cores(Config(), 3), 2)
    with pytest.raises(ConfigError, match="list devices of their own"):
        config.with_device_cores(Config(device=(DeviceConfig("a", "cpu", (0,)),)), 2)


def test_cores_and_devices_can_be_chosen() -> None:
    devices = (DeviceConfig("a", "cpu", (0,)), DeviceConfig("b", "cpu", (1,)), DeviceConfig("gpu0", "cuda"))
    settings = Config(resources=ResourcesConfig((2, 3, 4, 5), 2), device=devices)
    assert cores(settings, 8) == {
        "host": [("host/0", (2, 4)), ("host/1", (3, 5))],
        "device:cpu": [("a", (0,)), ("b", (1,))],
        "device:cuda": [("gpu0", ())],
    }


def test_a_device_may_be_a_gpu_or_a_board() -> None:
    text = """
        [[device]]
        name = "gpu0"
        kind = "gpu"
        cuda = 0
        [[device]]
        name = "board7"
        kind = "pi4"
        rpc = "board7.lab:9090"
        rpc_key = "pi4"
        [[device]]
        name = "cpu0"
        kind = "cpu"
        cores = [1]
    """
    there = Inventory((Gpu("GPU-" + 36 * "0", "NVIDIA H200", 90, 150 << 30),))
    pools = {pool.name: pool.units[0] for pool in config.resources(config.parse(text, "test"), [0, 1], there).pools}
    assert pools["device:gpu"].device == CudaDevice("GPU-" + 36 * "0", 90)
    assert pools["device:pi4"].device == RpcServer("board7.lab:9090", "pi4")
    assert pools["device:cpu"].device == CpuCores((1,))


@pytest.mark.parametrize(
    ("address", "host"),
    [("[::1]:9090", "::1"), ("[fe80::1%eth0]:9090", "fe80::1%eth0"), ("10.0.0.7:9090", "10.0.0.7"), ("b:9090", "b")],
)
def test_a_board_has_an_address_of_any_kind(address: str, host: str) -> None:
    settings = config.parse(f"[[device]]\nname = 'b'\nkind = 'pi4'\nrpc = '{address}'", "test")
    pools = {pool.name: pool.units[0].device for pool in config.resources(settings, [0, 1]).pools}
    board = pools["device:pi4"]
    assert isinstance(board, RpcServer)
    assert board.host_and_port == (host, 9090)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cores = [1]\ncuda = 0", "x has cores and cuda: a device is one of these"),
        ("cuda = 0\nrpc = 'b:9'", "x has cuda and rpc"),
        ("cuda = -1", "cuda"),
        ("rpc = 'board'", "rpc"),
        ("rpc = '::1:9090'", "rpc"),
    ],
)
def test_a_device_that_is_two_things_or_none_is_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.resources(config.parse(f"[[device]]\nname = 'x'\nkind = 'x'\n{words}\n", "test"), [0, 1])


def test_lanes_take_what_devices_leave() -> None:
    settings = Config(device=(DeviceConfig("a", "cpu", (0, 2)),))
    assert cores(settings, 4)["host"] == [("host/0", (1,)), ("host/1", (3,))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Config(device=(DeviceConfig("a", "cpu", (9,)),)), "a names core 9; this process may use"),
        (Config(device=(DeviceConfig("a", "cpu", (0,)), DeviceConfig("b", "cpu", (0,)))), "both own core 0"),
        (Config(resources=ResourcesConfig((0,)), device=(DeviceConfig("a", "cpu", (0,)),)), "both own core 0"),
        (Config(resources=ResourcesConfig((0, 1), 3)), "lanes is 3, but only 2 cores"),
        (Config(resources=ResourcesConfig(()), device=(DeviceConfig("g", "cuda"),)), "name cores for the host lanes"),
    ],
)
def test_what_would_disturb_measurements_is_refused(settings: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.resources(settings, range(4))


def test_the_cores_of_this_process_are_found() -> None:
    assert sorted(config.usable_cores()) == sorted(os.sched_getaffinity(0))


def test_the_daemon_and_its_clients_stay_off_the_devices() -> None:
    before = os.sched_getaffinity(0)
    try:
        made = config.resources(Config())
        made.stay_off_devices()
        lanes = {core for pool in made.pools if pool.name == "host" for unit in pool.units for core in unit.cores}
        assert os.sched_getaffinity(0) == lanes
    finally:
        os.sched_setaffinity(0, before)
