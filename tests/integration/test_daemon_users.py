"""Requests of users to the daemon, allowed and refused, over real sockets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from autosched.backend import Network
from autosched.errors import AutoschedError, NotFound, Refused, RequestError
from autosched.model import TaskInfo
from autosched.network_status import NetworkStatus, Recalled
from autosched.protocol import (
    AddRecord,
    GetOrder,
    GetRecords,
    GetSimilarJobs,
    JobList,
    JobOrder,
    ListJobs,
    ListSpans,
    PlanNetwork,
    RecordPage,
    SimilarJobs,
    SpanList,
)
from integration.served import (
    attached,
    record,
    run,
    serving,
    spec,
    until,
    user,
)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"model": "0" * 64}, NotFound, "is not uploaded"),
        (
            {"target": "cuda"},
            RequestError,
            "'cuda' does not fit the devices of the kind 'cpu'",
        ),
        ({"device": "npu"}, NotFound, "no device is of the kind 'npu'; there are: cpu"),
        ({"external": False, "backend": "magic"}, NotFound, "no backend is named 'magic'. Installed:"),
        ({"records_from": 7}, NotFound, "there is no job 7; there are none"),
        ({"learn_from": (7,)}, NotFound, "there is no job 7; there are none"),
        ({"target": "{'kind': 'llvm'}"}, RequestError, "is no JSON object"),
        ({"target": '{"kind": '}, RequestError, "is no JSON object"),
    ],
)
def test_impossible_submissions_are_refused_with_possible_ones(
    tmp_path: Path, words: dict[str, object], error: type[AutoschedError], message: str
) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            with pytest.raises(error) as caught:
                await daemon.submit(spec(**words))
            assert message in str(caught.value)
            assert (await daemon.info()).jobs_total == 0
            daemon.close()

    run(work)


def test_a_negative_budget_is_refused_by_the_protocol(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            with pytest.raises(AutoschedError, match="trials"):
                await daemon.submit(spec(trials=-1))
            assert (await daemon.info()).jobs_total == 0
            daemon.close()

    run(work)


def test_an_unknown_job_is_not_found_whatever_its_number(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            for job in (0, 1, -1, 2**63, 2**64 - 1):
                with pytest.raises(NotFound, match=f"there is no job {job}"):
                    await daemon.job(job)
                with pytest.raises(NotFound):
                    await daemon.link.call(GetRecords(job=job), RecordPage)
            assert (await daemon.link.call(ListSpans(after=2**64 - 1), SpanList)).spans == ()
            await daemon.submit(spec())
            with pytest.raises(NotFound, match="the last one is 1"):
                await daemon.job(2)
            daemon.close()

    run(work)


def test_more_jobs_than_allowed_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[limits]\njobs_active_max = 2\n"):
            daemon = await user(tmp_path)
            results = await asyncio.gather(*(daemon.submit(spec()) for _ in range(5)), return_exceptions=True)
            assert [isinstance(result, Refused) for result in results] == [False, False, True, True, True]
            await daemon.cancel(1)
            assert (await daemon.submit(spec())).job == 3
            daemon.close()

    run(work)


def test_jobs_are_listed_with_the_newest_last(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            for name in "abc":
                await daemon.submit(spec(name=name))
            listed = (await daemon.link.call(ListJobs(limit=2), JobList)).jobs
            assert [view.name for view in listed] == ["b", "c"]
            daemon.close()

    run(work)


def test_watching_a_job_waits_for_changes(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            view = await until(daemon, job, lambda view: "building" in view.reason)
            waiting = asyncio.ensure_future(daemon.job(job, since=view.version, wait_s=20.0))
            await daemon.info()
            assert not waiting.done()
            puppet.measure(0)
            assert (await waiting).trials == 1
            await puppet.end(step)
            daemon.close()

    run(work)


def test_a_list_is_filtered_and_paged(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            for number, team in enumerate(("vision", "audio", "vision", "vision"), 1):
                await daemon.submit(spec(name=f"net{number % 2}", labels={"team": team, "run": str(number)}))
            await daemon.cancel(3)

            async def listed(**words: Any) -> list[int]:
                return [view.job for view in (await daemon.link.call(ListJobs(**words), JobList)).jobs]

            assert await listed() == [1, 2, 3, 4]
            assert await listed(name="net1") == [1, 3]
            assert await listed(labels={"team": "vision"}) == [1, 3, 4]
            assert await listed(labels={"team": "vision", "run": "4"}) == [4]
            assert await listed(labels={"team": "vision"}, limit=2) == [3, 4]
            assert await listed(labels={"team": "vision"}, limit=2, before=3) == [1]
            assert await listed(state="active") == [1, 2, 4]
            assert await listed(state="cancelled") == [3]
            assert await listed(state="starting", name="net0") == [2, 4]
            assert await listed(owner="me", before=2) == [1]
            with pytest.raises(RequestError, match="'team=a b' is no label"):
                await daemon.submit(spec(labels={"team": "a b"}))

    run(work)


def test_a_job_learns_only_from_jobs_of_its_backend_and_target(tmp_path: Path) -> None:
    lab = "".join(f'[[device]]\nname = "{kind}0"\nkind = "{kind}"\n' for kind in ("cpu", "npu"))

    async def work() -> None:
        async with serving(tmp_path, lab):
            daemon = await user(tmp_path)
            teacher, client = await attached(daemon, tmp_path)
            with pytest.raises(Refused, match=f"job {teacher} has not ended.*autosched wait {teacher}"):
                await daemon.submit(spec(learn_from=(teacher,)))
            network = Network(tasks=(TaskInfo(task=1, name="conv", workload="00ff"),))
            await client.ask(PlanNetwork(network=network, trials=8))
            for trial in range(8):
                await client.ask(AddRecord(record=record(trial)))
            await daemon.cancel(teacher)
            await until(daemon, teacher, lambda view: view.state == "cancelled")
            learner, pupil = await attached(daemon, tmp_path, learn_from=(teacher, teacher))
            order = await pupil.ask(GetOrder(), JobOrder)
            assert isinstance(order, JobOrder)
            assert [(one.job, one.spec.name, one.workloads) for one in order.earlier] == [(teacher, "net", {1: "00ff"})]
            page = await pupil.ask(GetRecords(job=teacher), RecordPage)
            assert isinstance(page, RecordPage)
            assert [one.number for one in page.records] == [*range(8)]
            similar = await pupil.ask(GetSimilarJobs(tasks=network.tasks), SimilarJobs)
            assert isinstance(similar, SimilarJobs)
            assert similar.jobs == order.earlier, "chosen by the daemon, it is told as if the user had named it"
            taught = NetworkStatus(recalled=Recalled(teachers=(teacher, 77)))
            other, child = await attached(daemon, tmp_path)
            await child.ask(PlanNetwork(network=network, trials=8, status=taught))
            again = await child.ask(GetOrder(), JobOrder)
            assert isinstance(again, JobOrder)
            assert [one.job for one in again.earlier] == [teacher], "one that was pruned teaches nothing"
            await daemon.cancel(other)
            await daemon.cancel(learner)
            with pytest.raises(RequestError, match=f"job {learner} measured nothing"):
                await daemon.submit(spec(learn_from=(teacher, learner)))
            with pytest.raises(RequestError, match=f"job {teacher} measured on 'cpu', this one is for 'npu'"):
                await daemon.submit(spec(learn_from=(teacher,), device="npu"))
            daemon.close()

    run(work)
