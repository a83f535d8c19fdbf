"""The page, metrics and health over real HTTP: access, contents, and independence of viewers."""

import asyncio
import base64
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from autosched.daemon.access import keyring, peer_identity
from autosched.daemon.compose import Daemon as Served
from autosched.daemon.observe.usage import Cause, Spell
from autosched.daemon.web import feed, overview_page, records_page
from autosched.daemon.web.routes import Site
from autosched.errors import Refused
from autosched.model import JobLoad
from autosched.protocol.roles import Role
from autosched.recordstore import opening
from autosched.recordstore.store import RecordStore
from integration.served import PROFILE, attached, run, serving, signed_in, user
from samples_of_store import CONV, HERE, LAB, measured

ETC = Path(__file__).parents[2] / "etc"
METRIC = re.compile(r"\b((?:autosched|process|python)_[a-z0-9_]+)")


@asynccontextmanager
async def browsing(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    assert served._page is not None
    headers = {"Authorization": f"Bearer {await signed_in(served)}"}
    async with aiohttp.ClientSession(served._page.url, headers=headers) as session:
        yield session


@asynccontextmanager
async def stranger(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser that has not signed in."""
    assert served._page is not None
    async with aiohttp.ClientSession(served._page.url) as session:
        yield session


async def login(session: aiohttp.ClientSession, **shown: str) -> dict[str, str]:
    """Returns the header of a new session."""
    async with session.post("/login", json=shown) as answer:
        assert answer.status == 200, await answer.text()
        assert "Set-Cookie" not in answer.headers
        return {"Authorization": f"Bearer {(await answer.json())['session']}"}


async def text(session: aiohttp.ClientSession, path: str, status: int = 200) -> str:
    async with session.get(path, allow_redirects=False) as answer:
        assert answer.status == status, await answer.text()
        return await answer.text()


def test_metrics_exist_for_each_dashboard_panel_and_alert(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session:
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            puppet.measure(0, "cpu0")
            await puppet.end(step, load=PROFILE)
            step = await puppet.steps.get()
            await puppet.end(step, load=JobLoad(complete=True))
            metrics = await text(session, "/metrics")
            there = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if not line.startswith("#")}
            asked = METRIC.findall((ETC / "prometheus/alerts.yml").read_text())
            board = json.loads((ETC / "grafana/autosched.json").read_text())
            asked += METRIC.findall(" ".join(t["expr"] for panel in board["panels"] for t in panel["targets"]))
            unseen = {
                f"autosched_{name}_ratio" for name in ("estimate_p90_coverage", "estimate_error", "measure_noise")
            }
            assert set(asked) - there - unseen == set()
            assert 'autosched_steps_total{outcome="done",stage="build"} 1.0' in metrics
            assert 'autosched_trials_total{outcome="ok"} 1.0' in metrics
            assert len(there) > 40
            daemon.close()

    run(work)


def test_health_needs_no_key_and_other_pages_do(tmp_path: Path) -> None:
    async def work() -> None:
        viewer, _ = keyring.make(tmp_path / "keys", Role.VIEWER)
        async with serving(tmp_path) as served, stranger(served) as session:
            assert await text(session, "/healthz") == "ok\n"
            assert await text(session, "/readyz") == "ok\n"
            closed_paths = ("/metrics", "/api/everything", "/api/feed", "/api/jobs/1/report", "/%61pi/past", "/nothing")
            for closed in closed_paths:
                assert "Sign in with the link" in await text(session, closed, 401)
            for bare in ("/", "/jobs/7", "/jobs/7/report", "/records", "/login"):
                assert "<html" in await text(session, bare)
            for said in (
                f"Bearer {viewer.line()}",
                "Basic " + base64.b64encode(f"me:{viewer.line()}".encode()).decode(),
            ):
                async with session.get("/metrics", headers={"Authorization": said}) as answer:
                    assert answer.status == 200
            shown = await login(session, key=viewer.line())
            assert viewer.secret.hex() not in shown["Authorization"]
            async with session.get("/api/everything", headers=shown) as answer:
                assert (await answer.json())["role"] == "viewer"
            changed = {"Authorization": shown["Authorization"][:-1] + "x"}
            async with session.get("/api/everything", headers=changed) as answer:
                assert answer.status == 401
            async with session.post("/api/do/cancel", json={"job": 1}, headers=shown) as answer:
                assert answer.status == 403
            async with session.get("/api/feed", headers=shown) as feed:
                keyring.revoke(tmp_path / "keys", viewer.id)
                served._authenticator.look_at_keys()
                assert b"retry" in await feed.read(), "it ends"
            other, _ = keyring.make(tmp_path / "keys", Role.VIEWER)
            served._authenticator.look_at_keys()
            assert other.id != viewer.id
            async with session.get("/api/everything", headers=shown) as answer:
                assert answer.status == 401

    run(work)


def test_a_link_signs_in_once_and_ends_with_the_daemon(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served, stranger(served) as session:
            daemon = await user(tmp_path)
            link = await daemon.page_link(7)
            daemon.close()
            assert link.startswith(f"{session._base_url}jobs/7#sign-in=")
            shown = await login(session, link=link.partition("#sign-in=")[2])
            async with session.get("/api/everything", headers=shown) as answer:
                assert (await answer.json())["role"] == "operator"
            for wrong in ({"link": link.partition("#sign-in=")[2]}, {"link": "x"}, {}):
                async with session.post("/login", json=wrong) as answer:
                    assert answer.status == 401
        async with (
            serving(tmp_path) as served,
            stranger(served) as session,
            session.get("/api/everything", headers=shown) as answer,
        ):
            assert answer.status == 401

    run(work)


def test_a_session_of_a_user_ends_with_the_users_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session:
            assert json.loads(await text(session, "/api/everything"))["role"] == "operator"
            monkeypatch.setattr(peer_identity, "local_role", refuses)
            assert "belongs to another user" in await text(session, "/api/everything", 403)

    async def refuses(uid: int, group: int | None) -> Role:
        raise Refused("this daemon belongs to another user")

    run(work)


def filled(path: Path) -> None:
    with contextlib.closing(RecordStore(opening.file_url(path))) as store:
        store.add(LAB, [measured(0, 3e-3), measured(1, 2e-3), measured(2, None)])
        store.add(LAB, [measured(3, 1e-3, where=replace(HERE, device="AMD Ryzen"))])


def test_known_schedules_can_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_page, "WORKLOADS_MAX", 1)
    filled(tmp_path / "records.db")

    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session:
            found = json.loads(await text(session, "/api/records?operator=3x3&network=squeeze"))
            assert [(row["device"], row["tried"], row["failed"]) for row in found["workloads"]] == [
                ("AMD EPYC", 3, 1), ("AMD Ryzen", 1, 0),
            ]  # fmt: skip
            assert found["more"] is False
            best = found["workloads"][0]["best"]
            assert (best["best_s"], best["job"], best["owner"], best["own"]) == (2.2e-3, 7, "ada", False)
            assert json.loads(await text(session, "/api/records?operator=softmax"))["workloads"] == []
            about = json.loads(await text(session, f"/api/records/{CONV.hash}"))
            assert [one["best_s"] for one in about["fastest"]] == pytest.approx([1.1e-3, 2.2e-3, 3.3e-3])
            assert {device: len(points) for device, points in about["history"].items()} == {
                "AMD EPYC": 2, "AMD Ryzen": 1,
            }  # fmt: skip
            assert "there is no workload" in await text(session, "/api/records/none", 404)
            assert "characters" in await text(session, f"/api/records?operator={'x' * 300}", 400)
            assert "Known schedules" in await text(session, "/records")

    run(work)


def test_a_record_store_that_is_off_or_unreachable_is_reported(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "off", '[records]\nurl = "off"\n') as served, browsing(served) as session:
            assert "records.url is" in await text(session, "/api/records", 400)
        away = f'[records]\nurl = "sqlite:///{tmp_path}/missing/records.db"\n'
        async with serving(tmp_path / "away", away) as served, browsing(served) as session:
            assert "cannot be used" in await text(session, "/api/records", 503)

    (tmp_path / "off").mkdir()
    (tmp_path / "away").mkdir()
    run(work)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({}, 404),
    ],
)
def test_another_site_cannot_act_for_its_visitor(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session:
            every = {"Content-Type": "application/json"} | headers
            async with session.post("/api/do/cancel", data=b'{"job": 7}', headers=every) as answer:
                assert answer.status == status, await answer.text()
            async with session.get("/") as page:
                assert "default-src 'none'" in page.headers["Content-Security-Policy"]
                assert "unsafe" not in page.headers["Content-Security-Policy"]

    run(work)


def test_the_page_receives_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PULSE_S", 0.05)

    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session:
            assert json.loads(await text(session, "/api/everything"))["jobs"] == []
            daemon = await user(tmp_path)
            async with session.get("/api/feed") as stream:
                job, puppet = await attached(daemon, tmp_path)
                step = await puppet.steps.get()
                await puppet.end(step, load=JobLoad(complete=True))
                rows, bars = dict[int, str](), dict[int, str]()
                while (rows.get(job), bars.get(1)) != ("done", "done"):
                    line = await stream.content.readline()
                    if line.startswith(b"data: "):
                        said = json.loads(line[6:])
                        rows |= {row["job"]: row["state"] for row in said.get("jobs", ())}
                        bars |= {bar[0]: bar[7] for bar in said.get("steps", ())}
                assert set(bars) == {1}
            past = json.loads(await text(session, "/api/past"))
            assert [bar[3] for bar in past["steps"]] == ["build"]
            about = json.loads(await text(session, f"/api/jobs/{job}"))
            assert about["job"]["state"] == "done"
            assert "no job 99" in await text(session, "/api/jobs/99", 404)
            assert json.loads(await text(session, f"/api/jobs/{job}/curves"))["tasks"] == {}
            assert "<html" in await text(session, f"/api/jobs/{job}/report")
            daemon.close()

    run(work)


def test_viewers_reconnect_after_their_feed_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PULSE_S", 0.05)

    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session, session.get("/api/feed") as stream:
            site = await _site(served)
            whole = site._board.pulse

            async def broken() -> bytes:
                raise ZeroDivisionError("a bug")

            monkeypatch.setattr(site._board, "pulse", broken)
            while await stream.content.readline():
                pass  # until it ends, instead of stopping
            monkeypatch.setattr(site._board, "pulse", whole)
            async with session.get("/api/feed") as again:
                while not (await again.content.readline()).startswith(b"data: "):
                    pass

    run(work)


def test_idle_intervals_beyond_a_frame_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_page, "SPELLS_PER_PULSE", 2)

    async def work() -> None:
        async with serving(tmp_path) as served, browsing(served) as session:
            await text(session, "/healthz")
            found, usage = (await _site(served))._board, served._shown.usage
            found.open()
            now = served._runtime.clock()
            for number in range(5):
                usage.spells["cpu0"].append(Spell("cpu0", now + number, now + number + 0.5, Cause.NO_JOB))
            said = json.loads(await found.pulse())
            assert said["missed_idle"] == 3
            assert [spell[1] - round(now, 3) for spell in said["idle"]] == pytest.approx([3, 4])
            assert "missed_idle" not in json.loads(await found.pulse())
            found.close()

    run(work)


def test_a_viewer_that_stops_reading_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PULSE_S", 0.005)
    monkeypatch.setattr(feed, "PATIENCE_S", 0.2)

    async def work() -> None:
        async with serving(tmp_path) as served:
            assert served._page is not None
            port = int(served._page.url.rstrip("/").rpartition(":")[2])
            stuck = socket.socket()
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(stuck, ("127.0.0.1", port))
            session = f"Authorization: Bearer {await signed_in(served)}\r\n".encode()
            await loop.sock_sendall(stuck, b"GET /api/feed HTTP/1.1\r\nHost: localhost\r\n" + session + b"\r\n")
            site = await _site(served)
            while not len(site.feed):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            board = site._board.pulse

            async def large() -> bytes:
                return await board() + b" " * 40_000

            monkeypatch.setattr(site._board, "pulse", large)
            while len(site.feed):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stuck.close()

    run(work)


async def _site(served: Served) -> Site:
    assert served._page is not None
    while not isinstance(site := served._page._site, Site):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return site
