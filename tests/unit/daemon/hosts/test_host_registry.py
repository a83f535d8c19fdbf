"""Agents that lend hosts: duration of their leases, and the fate of their clients."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from autosched.core.events import (
    Event,
    HostCutOff,
    HostForgotten,
    HostJoined,
    HostLeft,
    JobSubmitted,
    ResourcesDeclared,
)
from autosched.core.scheduler import Scheduler
from autosched.daemon.hosts import device_comparison, host_registry
from autosched.daemon.hosts.host_registry import HostRegistry
from autosched.daemon.hosts.host_views import host_views
from autosched.daemon.runtime import Runtime
from autosched.device_probe import Pace, Unwell
from autosched.errors import AutoschedError, DaemonUnreachable, NotFound, Refused, RequestError
from autosched.model import JobSpec, Pool, Unit
from autosched.protocol import (
    PROTOCOL,
    EndedHostClient,
    Hello,
    HostedClient,
    HostFacts,
    HostLease,
    JoinHost,
    KillHostClient,
    LeaveHost,
    Method,
    ProbedUnit,
    ProbeUnit,
    ReportHost,
    StartHostClient,
    client_name,
)
from autosched.sim.scenario import pools
from autosched.wire.link import Link
from deadlines import DEADLINE_S

LEASE_S = 0.05
LONG_S = 600.0
NAME = client_name("token")


def order(token: str, cache_bytes_max: int = 0) -> StartHostClient:
    return StartHostClient(job=1, token=token, cache_bytes_max=cache_bytes_max)


class Told:
    """A runtime that handles events at once, and stores them."""

    def __init__(self) -> None:
        self.scheduler, self.events = Scheduler(), list[Event]()
        self._handle(ResourcesDeclared(pools(1, 1), 600.0, 60.0))
        self._handle(JobSubmitted(1, JobSpec(name="net", model="0" * 64)))
        self.events.clear()

    @property
    def state(self) -> Any:
        return self.scheduler.state

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    def tell(self, happen: Callable[[], Event | None]) -> None:
        if (event := happen()) is not None:
            self._handle(event)

    async def post(self, happen: Callable[[], Event | None]) -> None:
        self.tell(happen)

    def _handle(self, event: Event) -> None:
        self.scheduler.handle(self.scheduler.state.now, event)
        self.events.append(event)


class Wire:
    """A connection of an agent that stores its orders."""

    address = "tls://192.0.2.7:40000"

    def __init__(self) -> None:
        self.peer = type("Peer", (), {"serves": None})()
        self.handler: Callable[[Method], Awaitable[Any]] | None = None
        self.orders: list[Method] = []
        self.failure: AutoschedError | None = None
        self.answer: Any = None
        self._gone = asyncio.Event()
        self.lost = ""

    @property
    def closed(self) -> bool:
        return self._gone.is_set()

    def order(self, method: Method, timeout_s: float, failed: Callable[[AutoschedError], None]) -> None:
        self.orders.append(method)
        if self.failure is not None:
            failed(self.failure)

    async def call(self, method: Method, kind: type, *, timeout_s: float) -> Any:
        self.orders.append(method)
        if isinstance(self.answer, AutoschedError):
            raise self.answer
        return self.answer

    def abort(self, reason: str) -> None:
        self.lost = self.lost or reason
        self._gone.set()

    async def wait_closed(self) -> str:
        await self._gone.wait()
        return self.lost

    async def abort_when_silent(self, seconds: float) -> None:
        await asyncio.Event().wait()

    async def say(self, method: Method) -> Any:
        assert self.handler is not None
        return await self.handler(method)


class Scene:
    def __init__(self, lease_s: float = LONG_S) -> None:
        self.told = Told()
        self.disturbed: list[tuple[str, float, str]] = []
        self.registry = HostRegistry(cast(Runtime, self.told), lease_s, lambda *said: self.disturbed.append(said))

    def agent(self) -> Wire:
        wire = Wire()
        self.registry.attach(cast(Link, wire), Hello(protocol=PROTOCOL, role="agent", software="a test"))
        return wire

    async def joined(self, **other: Any) -> Wire:
        wire = self.agent()
        lease = await wire.say(join(**other))
        assert isinstance(lease, HostLease)
        assert not lease.kill
        return wire

    @property
    def kinds(self) -> list[type]:
        return [type(event) for event in self.told.events]


def join(*clients: str, machine: str = "a" * 32, lent: tuple[Pool, ...] = pools(1, 1), host: str = "lab2") -> JoinHost:
    alive = tuple(HostedClient(name) for name in clients)
    return JoinHost(host=host, machine=machine, pools=lent, facts=HostFacts(), clients=alive)


def report(*clients: str, memory_bytes: int = 0) -> ReportHost:
    alive = tuple(HostedClient(name, memory_bytes) for name in clients)
    return ReportHost(clients=alive, load=0.5, memory_free_bytes=7, clock_s=0.0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def test_a_host_joins_under_names_of_its_own_and_once() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        (event,) = scene.told.events
        assert isinstance(event, HostJoined)
        assert [(pool.name, pool.units[0].name) for pool in event.pools] == [
            ("host@lab2", "host/0@lab2"),
            ("device:cpu@lab2", "cpu0@lab2"),
        ]
        assert {unit.host for pool in event.pools for unit in pool.units} == {"lab2"}
        second = await scene.joined()
        assert wire.closed
        assert not second.closed
        assert scene.kinds == [HostJoined], "the agent just has another connection"

    run(story)


def test_clients_that_the_daemon_gave_up_are_ended_before_a_host_joins() -> None:
    async def story() -> None:
        scene = Scene()
        wire = scene.agent()
        assert (await wire.say(join("0" * 16))).kill == ("0" * 16,)
        assert not scene.told.events
        with pytest.raises(Refused, match="lends no host"):
            await wire.say(report())
        assert not (await wire.say(join())).kill
        assert scene.kinds == [HostJoined]

    run(story)


def test_a_client_starts_reports_its_memory_and_ends() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        client = scene.registry.launch("lab2", order("token", 99))
        assert wire.orders == [order("token", 99)]
        assert not (await wire.say(report(NAME, memory_bytes=5))).kill
        assert client.memory_bytes == 5
        await wire.say(EndedHostClient(client=NAME, how="exit code 1"))
        assert await client.wait() == "exit code 1"
        await wire.say(EndedHostClient(client=NAME, how="again"))
        assert not scene.registry.clients_of("lab2")

    run(story)


def test_a_client_that_is_not_wanted_is_killed_now_or_with_the_next_report() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        client = scene.registry.launch("lab2", order("token"))
        wire.failure = DaemonUnreachable("no answer")
        client.kill()
        assert wire.orders[-1] == KillHostClient(client=NAME, reason="it is given up")
        assert (await wire.say(report(NAME))).kill == (NAME,)

    run(story)


@pytest.mark.parametrize(("failure", "ends"), [(RequestError("no room"), True), (DaemonUnreachable("silent"), False)])
def test_a_failed_request_to_an_agent_is_reported(failure: AutoschedError, ends: bool) -> None:
    """Without an answer the client may have been started."""

    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        wire.failure = failure
        client = scene.registry.launch("lab2", order("token"))
        assert bool(scene.registry.clients_of("lab2")) is not ends
        if ends:
            assert "cannot be started on lab2: no room" in await client.wait()

    run(story)


def test_a_client_that_its_agent_does_not_know_any_more_is_lost() -> None:
    async def story() -> None:
        scene = Scene()
        await scene.joined()
        gone, there = (
            scene.registry.launch("lab2", StartHostClient(job=1, token=token, cache_bytes_max=0))
            for token in ("token", "other")
        )
        assert not (await scene.agent().say(join(client_name("other")))).kill
        assert "does not know it" in await gone.wait()
        assert scene.registry.clients_of("lab2") == (there,)

    run(story)


def test_a_host_is_cut_off_and_comes_back() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        client = scene.registry.launch("lab2", order("token"))
        wire.abort("its cable was cut")
        while scene.kinds[-1] is not HostCutOff:  # noqa: ASYNC110 - some turns of the loop
            await asyncio.sleep(0)
        (view,) = host_views(scene.told.state, scene.registry, scene.told.clock())
        assert (view.state, view.reason) == ("away", "its cable was cut")
        assert view.lost_in_s is not None
        assert LONG_S < view.lost_in_s <= LONG_S * 7 / 6
        assert not (await scene.agent().say(join(NAME))).kill
        assert scene.kinds == [HostJoined, HostCutOff, HostJoined]
        assert scene.registry.clients_of("lab2") == (client,)

    run(story)


def test_a_silent_host_is_lost_with_its_clients_after_its_lease() -> None:
    async def story() -> None:
        scene, lost = Scene(LEASE_S), list[str]()
        scene.registry.lost = lambda host, reason: lost.append(f"{host} after {scene.kinds[-1].__name__}")
        await scene.joined()
        client = scene.registry.launch("lab2", order("token"))
        assert "it was silent" in await client.wait()
        assert lost == ["lab2 after HostJoined"], "told before the scheduler starts clients elsewhere"
        assert HostLeft in scene.kinds
        assert not (await scene.agent().say(join())).kill
        assert scene.kinds[-1] is HostJoined

    run(story)


def test_reports_renew_the_lease() -> None:
    async def story() -> None:
        scene = Scene(LEASE_S)
        wire = await scene.joined()
        until = scene.told.clock() + 4 * LEASE_S
        while scene.told.clock() < until:
            await wire.say(report())
            await asyncio.sleep(LEASE_S / 20)
        assert scene.kinds == [HostJoined]

    run(story)


def test_hosts_of_the_previous_daemon_are_awaited() -> None:
    async def story() -> None:
        scene = Scene(LEASE_S)
        scene.told.tell(lambda: HostJoined("lab2", (Pool("host@lab2", (Unit("host/0@lab2", host="lab2"),)),), "a" * 32))
        await scene.registry.resume()
        assert scene.kinds == [HostJoined, HostCutOff]
        client = scene.registry.adopt("lab2", "token")
        assert "it was silent" in await client.wait()
        assert scene.kinds[-1] is HostLeft

    run(story)


def test_an_agent_removes_its_host() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        client = scene.registry.launch("lab2", order("token"))
        await wire.say(LeaveHost(reason="it is stopped"))
        assert scene.told.events[-1] == HostCutOff("lab2", "it is stopped")
        await wire.say(EndedHostClient(client=NAME, how="killed by SIGKILL"))
        assert scene.registry.clients_of("lab2") == (client,), "it ends with its host, and no fault of its job"
        with pytest.raises(Refused, match="has not left"):
            await scene.registry.forget("lab2")
        await wire.say(LeaveHost(reason="it is stopped", ended=True))
        assert scene.told.events[-1] == HostLeft("lab2", "it is stopped")
        assert await client.wait() == "it is stopped"
        await scene.registry.forget("lab2")
        assert scene.kinds[-1] is HostForgotten
        with pytest.raises(NotFound, match="there are: none"):
            await scene.registry.forget("lab2")

    run(story)


def test_an_agent_whose_owner_is_back_reports_the_start_of_the_disturbance() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        await wire.say(LeaveHost(reason="its owner is back", ended=True, disturbed_s=0.5))
        assert [(unit, reason) for unit, _, reason in scene.disturbed] == [
            ("host/0@lab2", "its owner is back"),
            ("cpu0@lab2", "its owner is back"),
        ]
        assert all(since <= scene.told.clock() - 0.5 for _, since, _ in scene.disturbed)
        assert scene.told.events[-1] == HostLeft("lab2", "its owner is back")

    run(story)


def test_another_machine_of_the_name_waits_until_the_first_has_left() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        with pytest.raises(Refused, match="another machine lends a host of the name lab2"):
            await scene.agent().say(join(machine="c" * 32))
        assert not wire.closed
        await wire.say(LeaveHost(reason="it is stopped", ended=True))
        await scene.joined(machine="c" * 32)

    run(story)


def test_a_host_with_other_units_leaves_first() -> None:
    async def story() -> None:
        scene = Scene()
        await scene.joined()
        client = scene.registry.launch("lab2", order("token"))
        wire = scene.agent()
        assert (await wire.say(join(NAME, lent=pools(2, 1)))).kill == (NAME,)
        assert not (await wire.say(join(lent=pools(2, 1)))).kill
        assert "does not know it" in await client.wait()
        assert scene.kinds == [HostJoined, HostLeft, HostJoined]
        assert not wire.closed

    run(story)


@pytest.mark.parametrize(
    ("lent", "why"),
    [
        ((Pool("host", (Unit("host/0@x"),)),), "have no @"),
        ((Pool("device:cpu@x", (Unit("cpu0"),)),), "have no @"),
        ((Pool("lanes", (Unit("host/0"),)),), "no pool of lanes or devices"),
    ],
)
def test_ambiguous_names_are_refused(lent: tuple[Pool, ...], why: str) -> None:
    async def story() -> None:
        with pytest.raises(RequestError, match=why):
            await Scene().agent().say(join(lent=lent))

    run(story)


def test_devices_of_another_processor_are_a_separate_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_comparison, "cpu_model", lambda: "Xeon (R) 1")

    async def story() -> None:
        scene = Scene()
        lanes, cpus = pools(1, 1)
        lent = (lanes, cpus, Pool("device:big", cpus.units))
        for host, cpu in (("a", "Xeon (R) 1"), ("b", "EPYC  9V74"), ("c", "EPYC  9V74"), ("d", "")):
            said = join(host=host, machine=host * 32, lent=lent)
            await scene.agent().say(replace(said, facts=HostFacts(cpu=cpu)))
        views = host_views(scene.told.state, scene.registry, scene.told.clock())
        assert [view.kinds for view in views] == [
            ("cpu", "big"),
            ("cpu.epyc-9v74", "big.epyc-9v74"),
            ("cpu.epyc-9v74", "big.epyc-9v74"),
            ("cpu", "big"),
        ]

    run(story)


def test_a_unit_of_another_host_keeps_its_name() -> None:
    async def story() -> None:
        scene = Scene()
        scene.told.tell(
            lambda: ResourcesDeclared((Pool("device:cpu", (Unit("cpu0@lab2"),)), pools(1, 1)[0]), 600.0, 60.0)
        )
        with pytest.raises(RequestError, match="has a unit cpu0@lab2 already"):
            await scene.agent().say(join())

    run(story)


def test_an_agent_is_told_limits_and_whether_to_reboot() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        wanted = replace(order("token", 99), memory_bytes_max=5, tasks_max=7)
        scene.registry.launch("lab2", wanted)
        wire.answer = ProbedUnit()
        await scene.registry.probe(scene.told.state.slots["cpu0@lab2"].unit, reboots=False)
        assert wire.orders == [wanted, ProbeUnit(unit="cpu0", reboots=False)]

    run(story)


def test_a_device_is_probed_by_its_own_host() -> None:
    async def story() -> None:
        scene = Scene()
        wire = await scene.joined()
        unit = scene.told.state.slots["cpu0@lab2"].unit
        wire.answer = ProbedUnit(1.5, 2.5)
        assert await scene.registry.probe(unit, reboots=True) == Pace(1.5, 2.5)
        assert wire.orders[-1] == ProbeUnit(unit="cpu0")
        wire.answer = ProbedUnit()
        assert await scene.registry.probe(unit, reboots=True) is None
        wire.answer = RequestError("its reboot hook ended with exit code 7")
        with pytest.raises(Unwell, match="exit code 7"):
            await scene.registry.probe(unit, reboots=True)
        wire.abort("its cable was cut")
        with pytest.raises(Unwell, match="lab2 cannot be reached"):
            await scene.registry.probe(unit, reboots=True)

    run(story)


@pytest.mark.parametrize(
    ("boot", "lane", "device", "refused"),
    [
        ("this", 0, 2, False),
        ("this", 2, 1, True),
        ("this", 1, 2, True),
        ("this", 2, 0, True),
        ("other", 0, 1, False),
        ("", 0, 1, False),
    ],
)
def test_a_core_of_a_device_belongs_to_one_unit_of_a_machine(
    boot: str, lane: int, device: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's own lane has core 0, its device core 1; two lanes may share one."""
    monkeypatch.setattr(host_registry, "boot_id", lambda: "this")
    lent = (Pool("host", (Unit("host/0", (lane,)),)), Pool("device:cpu", (Unit("cpu0", (device,)),)))

    async def story() -> None:
        scene = Scene()
        said = replace(join(lent=lent), facts=HostFacts(boot=boot))
        if refused:
            with pytest.raises(RequestError, match="on this very machine"):
                await scene.agent().say(said)
            return
        await scene.agent().say(said)
        if boot:
            with pytest.raises(RequestError, match=f"core {device} belongs to cpu0@lab2 already"):
                await scene.agent().say(replace(said, host="lab3", machine="d" * 32))

    run(story)


def test_different_versions_are_reported() -> None:
    async def story() -> None:
        scene = Scene()
        for host, tvm in (("a", "0.26"), ("b", "0.27"), ("c", "0.27")):
            facts = HostFacts(versions={"apache-tvm": tvm, "python": "3.11"})
            await scene.agent().say(JoinHost(host=host, machine=host * 32, pools=pools(1, 1), facts=facts))
        views = host_views(scene.told.state, scene.registry, scene.told.clock())
        assert [view.differs for view in views] == [
            ("apache-tvm 0.26, but 0.27 on b, 0.27 on c",),
            ("apache-tvm 0.27, but 0.26 on a",),
            ("apache-tvm 0.27, but 0.26 on a",),
        ]

    run(story)
