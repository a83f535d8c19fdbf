"""The Python API against a real daemon with the backend that needs no compiler."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autosched
from autosched.api import daemon_address
from autosched.errors import JobCancelled, JobFailed, RequestError
from autosched.model import Purpose
from autosched.protocol import DaemonInfo, Done, Info, ListDevices, Shutdown, UnitList
from autosched.wire.blocking_link import BlockingLink
from integration.lab import MODEL, Lab, lab


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def model(tmp_path: Path) -> autosched.Model:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    return autosched.load_model(tmp_path / "net.onnx")


def words(there: Lab, **more: Any) -> dict[str, Any]:
    return {"daemon": there.address, "backend": "mock", "trials": 16, "fresh": True, **more}


def test_tuning_blocks_until_it_is_done(there: Lab, model: autosched.Model) -> None:
    seen: list[int] = []
    tuned = model.tune(**words(there, watch=lambda view: seen.append(view.trials)))
    assert tuned.job.state == "done"
    assert seen[-1] == 16
    assert sum(record.purpose is Purpose.TRIAL for record in tuned.records) == 16
    assert tuned.evaluation is not None
    assert tuned.evaluation.published == "tuned"


def test_the_policy_is_shown_and_changed(there: Lab) -> None:
    before = autosched.policy(daemon=there.address)
    assert autosched.policy("sequential", goal="latency", daemon=there.address).policy == "sequential"
    after = autosched.policy(before.policy, goal=before.goal, daemon=there.address)
    assert (after.policy, after.goal) == (before.policy, before.goal)


def test_a_job_has_the_requested_priority_and_deadline(there: Lab, model: autosched.Model) -> None:
    view = model.submit(**words(there, priority=3, deadline_s=60.0)).view()
    assert view.priority == 3
    assert view.deadline_at == pytest.approx(view.submitted_at + 60.0)


def test_results_are_written_to_the_requested_folder(there: Lab, model: autosched.Model, tmp_path: Path) -> None:
    model.tune(**words(there, output=tmp_path / "out"))
    assert (tmp_path / "out/report.html").exists()


def test_without_a_daemon_a_private_one_is_started(
    model: autosched.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOSCHED_HOST", raising=False)
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path / "state"))
    tuned = model.tune(backend="mock", trials=8)
    assert tuned.job.state == "done"
    with BlockingLink(daemon_address.default()) as daemon:
        assert daemon.call(Info(), DaemonInfo).on_demand
        daemon.call(Shutdown(), Done)


def test_an_idle_private_daemon_is_replaced_by_one_with_the_requested_cores(
    model: autosched.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOSCHED_HOST", raising=False)
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path / "state"))
    every = len(os.sched_getaffinity(0))
    pids = []
    for cores in (1, every, None):
        assert model.tune(backend="mock", trials=8, cores=cores).job.state == "done"
        with BlockingLink(daemon_address.default()) as daemon:
            pids.append(daemon.call(Info(), DaemonInfo).pid)
            (device,) = (u for u in daemon.call(ListDevices(), UnitList).units if "device:cpu" in u.pools)
        assert len(device.cores) == (cores or every)
    assert len(set(pids)) == (2 if every > 1 else 1)
    with BlockingLink(daemon_address.default()) as daemon:
        daemon.call(Shutdown(), Done)


def test_coroutines_tune_several_networks_at_once(there: Lab, model: autosched.Model) -> None:
    async def both() -> list[autosched.TunedModel]:
        return list(await asyncio.gather(*(model.tune_async(**words(there, seed=seed)) for seed in (1, 2))))

    one, other = asyncio.run(both())
    assert one.job.job != other.job.job
    assert {r.candidate for r in one.records} != {r.candidate for r in other.records}


def test_a_handle_detaches_from_its_job_and_cancels_it(there: Lab, model: autosched.Model) -> None:
    job = model.submit(**words(there, options={"hang_stage": "build"}))
    assert job.view().state in ("starting", "running")
    job.cancel()
    with pytest.raises(JobCancelled):
        job.wait()


def test_coroutines_detach_from_a_job_and_cancel_it(there: Lab, model: autosched.Model) -> None:
    async def work() -> None:
        job = await model.submit_async(**words(there, options={"hang_stage": "build"}))
        assert (await job.view_async()).state in ("starting", "running")
        await job.cancel_async()
        with pytest.raises(JobCancelled):
            await job.wait_async()

    asyncio.run(work())


def test_a_failed_job_raises_an_error_with_its_reason(there: Lab, model: autosched.Model) -> None:
    with pytest.raises(JobFailed, match="no LSTM here"):
        model.tune(**words(there, options={"reject": "no LSTM here"}))


def test_a_backend_without_a_module_raises_an_error_on_request(there: Lab, model: autosched.Model) -> None:
    with pytest.raises(RequestError, match="makes no module"):
        model.tune(**words(there)).compile()
