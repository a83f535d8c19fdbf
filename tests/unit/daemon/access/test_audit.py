"""The audit trail of commands: written before they run, with their outcome, without secrets."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import Struct

from autosched.daemon.access import audit
from autosched.daemon.access.audit import ABOUT_CHARS, UNANSWERED, Audit, about
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.storage import audit_log
from autosched.daemon.storage.journal import Journal
from autosched.errors import NotFound
from autosched.model import JobSpec
from autosched.protocol import AuditEntry, CancelJob, ChoosePolicy, Done, Submit, Submitted
from autosched.protocol.roles import Role

ANNA = Principal("uid 1000", Role.USER, "unix:/run/x")


def kept(path: Path, work: Callable[[Audit], Awaitable[None]]) -> tuple[AuditEntry, ...]:
    """Returns the trail after this work and a restart."""

    async def life() -> tuple[AuditEntry, ...]:
        journal = Journal(path, *audit_log.TABLES)
        list(journal.replay())
        trail = Audit(journal, Stream(lambda: 0.0))
        journal.start()
        try:
            await work(trail)
            return await trail.latest(100, None)
        finally:
            journal.close()

    return asyncio.run(life())


async def nothing(trail: Audit) -> None:
    pass


async def answer(with_: Struct) -> Struct:
    return with_


async def failing(error: Exception) -> Struct:
    raise error


def test_commands_and_their_results_are_stored(tmp_path: Path) -> None:
    async def work(trail: Audit) -> None:
        spec = JobSpec(name="net", model="0" * 64)
        await trail.of(ANNA, Submit(spec=spec), answer(Submitted(job=7, token="secret")))
        with pytest.raises(NotFound):
            await trail.of(ANNA, CancelJob(job=9), failing(NotFound("there is no job 9")))
        with pytest.raises(ZeroDivisionError):
            await trail.of(ANNA, CancelJob(job=1), failing(ZeroDivisionError()))

    path = tmp_path / "db"
    entries = kept(path, work)
    assert entries == kept(path, nothing)
    assert [(one.id, one.command, one.outcome) for one in entries] == [
        (1, "submit", "job 7"),
        (2, "cancel_job", "not_found: there is no job 9"),
        (3, "cancel_job", "crashed: ZeroDivisionError"),
    ]
    assert {(one.who, one.role, one.address) for one in entries} == {("uid 1000", "user", "unix:/run/x")}
    assert "secret" not in str(entries)


def test_numbers_continue_after_a_restart(tmp_path: Path) -> None:
    async def one(trail: Audit) -> None:
        await trail.of(ANNA, CancelJob(job=1), answer(Done()))

    assert [entry.id for entry in kept(tmp_path / "db", one)] == [1]
    assert [entry.id for entry in kept(tmp_path / "db", one)] == [1, 2]


def test_a_command_is_stored_before_it_ends(tmp_path: Path) -> None:
    """A daemon that dies during a command leaves a row without an outcome."""

    async def work(trail: Audit) -> None:
        async def during() -> Struct:
            (entry,) = await trail.latest(1, None)
            assert (entry.command, entry.outcome) == ("cancel_job", "")
            return Done()

        await trail.of(ANNA, CancelJob(job=1), during())

    assert [entry.outcome for entry in kept(tmp_path / "db", work)] == ["done"]


def test_a_command_whose_connection_is_lost_says_so(tmp_path: Path) -> None:
    async def work(trail: Audit) -> None:
        async def for_ever() -> Struct:
            await asyncio.Event().wait()
            return Done()

        asked = asyncio.ensure_future(trail.of(ANNA, CancelJob(job=1), for_ever()))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])

    assert [entry.outcome for entry in kept(tmp_path / "db", work)] == [UNANSWERED]


def test_the_oldest_rows_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT_OF_USER_MAX", 3)
    monkeypatch.setattr(audit, "FORGET_EVERY", 1)

    async def work(trail: Audit) -> None:
        for job in range(1, 10):
            await trail.of(ANNA, CancelJob(job=job), answer(Done()))

    assert [entry.id for entry in kept(tmp_path / "db", work)] == [7, 8, 9]


def test_rows_of_one_user_push_out_no_row_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT_OF_USER_MAX", 20)
    monkeypatch.setattr(audit, "FORGET_EVERY", 7)
    owner, other = Principal("uid 0", Role.OPERATOR), Principal("key bob", Role.USER)

    async def work(trail: Audit) -> None:
        for who in (owner, other):
            for job in range(1, 31):
                await trail.of(who, CancelJob(job=job), answer(Done()))
        for job in range(1, 3_001):
            await trail.of(ANNA, CancelJob(job=job), answer(Done()))
        entries = await trail.latest(1_000, None)
        assert sum(entry.who == owner.name for entry in entries) == 30
        assert 20 <= sum(entry.who == other.name for entry in entries) <= 27
        assert 20 <= sum(entry.who == ANNA.name for entry in entries) <= 27

    kept(tmp_path / "db", work)


def test_a_full_disk_is_not_waited_for(tmp_path: Path) -> None:
    async def work(trail: Audit) -> None:
        trail._journal.stalled = "the disk is full"
        for job in range(1, 10):
            await trail.of(ANNA, CancelJob(job=job), answer(Done()))
        trail._journal.stalled = ""

    assert kept(tmp_path / "db", work) == ()


def test_pages_go_back_in_time(tmp_path: Path) -> None:
    async def work(trail: Audit) -> None:
        for job in range(1, 6):
            await trail.of(ANNA, CancelJob(job=job), answer(Done()))
        assert [one.id for one in await trail.latest(2, None)] == [4, 5]
        assert [one.id for one in await trail.latest(2, 4)] == [2, 3]

    kept(tmp_path / "db", work)


def test_the_subject_of_a_command_fits_a_line() -> None:
    spec = JobSpec(name="n" * 200, model="0" * 64, target="x" * 2_000, options={"password": "hunter2"})
    assert len(about(Submit(spec=spec))) == ABOUT_CHARS
    assert "hunter2" not in about(Submit(spec=JobSpec(name="n", model="0" * 64, options={"password": "hunter2"})))
    assert json.loads(about(ChoosePolicy(policy="interleaved"))) == {"policy": "interleaved"}
