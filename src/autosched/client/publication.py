"""Tells the daemon about the network, and hands result files over to the user."""

from functools import partial
from pathlib import Path

import msgspec

from autosched import backend
from autosched.backend import EVALUATION
from autosched.client.daemon_session import DaemonSession
from autosched.client.plan.job_plan import JobPlan
from autosched.client.stage_runner import StageRunner
from autosched.protocol import AddArtifacts, Done, PlanNetwork, ResultFile
from autosched.wire import blob_transfer


async def tell_network(line: DaemonSession, plan: JobPlan, runner: StageRunner, *, moves: bool) -> None:
    """Report the network, and its comparison with the baseline as far as known. `moves`: whether its stages may run on
    other hosts."""
    network = plan.network
    assert network is not None
    if moves:
        network = msgspec.structs.replace(network, movable=runner.movable)
    network = msgspec.structs.replace(
        network, divisible=runner.divisible, comparison=plan.early.comparison, measured=plan.early.measurements
    )
    await line.ask(PlanNetwork(network=network, trials=plan.trials), Done)


async def hand_over(line: DaemonSession, folder: Path, evaluation: backend.Evaluation) -> None:
    """Upload the files of the folder, then name all of them in one message, so that no user fetches files of two
    builds."""
    files = []
    for path in _written(folder, evaluation):
        digest = await line.over(partial(blob_transfer.upload, path=path))
        files.append(ResultFile(path.name, digest))
    await line.ask(AddArtifacts(files=tuple(files)), Done)


def _written(folder: Path, evaluation: backend.Evaluation) -> list[Path]:
    text = msgspec.json.format(msgspec.json.encode(evaluation), indent=2)
    (folder / EVALUATION).write_bytes(text + b"\n")
    return sorted(path for path in folder.iterdir() if path.is_file())
