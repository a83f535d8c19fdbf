"""Tells the daemon about the network, and hands result files over to the user."""

from functools import partial
from pathlib import Path

import msgspec

from autosched import backend
from autosched.backend import EVALUATION
from autosched.client.daemon_session import DaemonSession
from autosched.client.plan.job_plan import JobPlan
from autosched.client.stage_runner import StageRunner
from autosched.protocol import (
    ARTIFACTS_SINCE,
    CODE_SINCE,
    KNOWN_SINCE,
    MEASUREMENTS_SINCE,
    AddArtifact,
    AddArtifacts,
    Done,
    PlanNetwork,
    ResultFile,
)
from autosched.wire import blob_transfer


async def tell_network(line: DaemonSession, plan: JobPlan, runner: StageRunner, *, moves: bool) -> None:
    """Report the network, and its comparison with the baseline as far as known. `moves`: whether its stages may run on
    other hosts."""
    network = plan.network
    assert network is not None
    if moves:
        network = msgspec.structs.replace(network, movable=runner.movable)
    network = msgspec.structs.replace(network, divisible=runner.divisible)
    if line.speaks(ARTIFACTS_SINCE):
        network = msgspec.structs.replace(network, comparison=plan.early.comparison)
    if line.speaks(MEASUREMENTS_SINCE):
        network = msgspec.structs.replace(network, measured=plan.early.measurements)
    else:
        network = msgspec.structs.replace(network, identity=None)
    if not line.speaks(CODE_SINCE):
        network = _without_code(network)
    if not line.speaks(KNOWN_SINCE):
        network = msgspec.structs.replace(network, recalled=backend.Recalled(), movable=(), divisible=())
    await line.ask(PlanNetwork(network=network, trials=plan.trials), Done)


async def hand_over(line: DaemonSession, folder: Path, evaluation: backend.Evaluation) -> None:
    """Upload the files of the folder, then name all of them in one message, so that no user fetches files of two
    builds."""
    files = []
    for path in _written(folder, evaluation):
        digest = await line.over(partial(blob_transfer.upload, path=path))
        files.append(ResultFile(path.name, digest))
    if line.speaks(ARTIFACTS_SINCE):
        await line.ask(AddArtifacts(files=tuple(files)), Done)
        return
    for file in files:
        await line.ask(AddArtifact(name=file.name, sha256=file.sha256), Done)


def _written(folder: Path, evaluation: backend.Evaluation) -> list[Path]:
    text = msgspec.json.format(msgspec.json.encode(evaluation), indent=2)
    (folder / EVALUATION).write_bytes(text + b"\n")
    return sorted(path for path in folder.iterdir() if path.is_file())


def _without_code(network: backend.Network) -> backend.Network:
    """The network for a daemon that does not know templates and measurement methods."""
    identity = network.identity
    return msgspec.structs.replace(
        network,
        tasks=tuple(msgspec.structs.replace(info, template="") for info in network.tasks),
        identity=identity and msgspec.structs.replace(identity, measurement=""),
    )
