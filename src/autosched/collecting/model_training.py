"""Trains the models that order schedules, on a host lane of a daemon if one runs.

Such a job has the lowest priority: measurements of other jobs are not disturbed, and their builds go first.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.api import tvm_programs
from autosched.api.connection import Daemon
from autosched.api.local_daemon import RECORDS_VARIABLE
from autosched.client import one_step_client
from autosched.errors import NotFound, RequestError
from autosched.model import HOST_POOL, NETWORK_TASK, JobId, JobSpec, TaskLoad, device_kind

PRIORITY = -100
"""Priority of the job: the lowest."""
TRAINING_S = 6 * 3600.0
"""Maximum seconds of a training of all families."""
EXPECTED_S = 300.0
"""Assumed seconds of a training."""


async def train(
    url: str, words: Sequence[str], daemon: Daemon | None = None, *,
    labels: Mapping[str, str] | None = None, waiting: Callable[[JobId], None] | None = None,
    progress: Callable[[Mapping[str, Any]], None] | None = None,
) -> Sequence[Mapping[str, Any]]:  # fmt: skip
    """Train the models that are due; returns what became of each operator family.

    `url`: the record store, with its password. `words`: options of the training. `daemon`: its host lane is used; None:
    the training runs at once, on any core. `waiting`: called with the job's number if the lane is not free at once.
    `progress`: called when the training of a family begins ("begun") and with what became of it ("family").
    Raises AutoschedError; models that were finished before are kept.
    """

    def told(answer: Mapping[str, Any]) -> None:
        if progress is not None and "ok" not in answer:
            progress(answer)

    async def run(cores: Sequence[int]) -> Sequence[Mapping[str, Any]]:
        answer = await tvm_programs.ask(
            tvm_programs.RANKER_TRAINING, [*words, *tvm_programs.on_cores(cores)], timeout_s=TRAINING_S,
            environment={RECORDS_VARIABLE: url}, on_object=told,
        )  # fmt: skip
        trained = answer.get("trained")
        if not isinstance(trained, list):
            raise RequestError("the training gave no answer. See what is wrong with:  autosched doctor")
        return trained

    if daemon is None:
        return await run(())
    spec = JobSpec(
        name="train-models", model="0" * 64, device=await _device(daemon), backend="none", external=True,
        priority=PRIORITY, labels=dict(labels or {}),
    )  # fmt: skip
    load = TaskLoad(
        task=NETWORK_TASK, resources_next=(HOST_POOL,), stage_next="train", expected_s=EXPECTED_S, timeout_s=TRAINING_S
    )
    where = (await daemon.info()).address or daemon.address
    return await one_step_client.run_under_lease(
        daemon.link, where, spec, load, lambda order: run(order.cores), waiting=waiting
    )


async def _device(daemon: Daemon) -> str:
    """A kind of device, which each job must name. Raises NotFound."""
    for unit in await daemon.units():
        for pool in unit.pools:
            if kind := device_kind(pool):
                return kind
    raise NotFound("the daemon has no device. See what it has:  autosched devices")
