"""Tells the daemon about the network, and hands result files over to the user."""

from functools import partial
from pathlib import Path

import msgspec

from autosched import backend
from autosched.backend import EVALUATION
from autosched.client.daemon_session import DaemonSession
from autosched.client.plan.job_plan import JobPlan
from autosched.client.stage_runner import StageRunner
from autosched.network_status import NetworkStatus
from autosched.protocol import AddArtifacts, Done, PlanNetwork, ReportStatus, ResultFile
from autosched.wire import blob_transfer


class NetworkReports:
    """Reports the network of a job once, and its status when it has changed."""

    def __init__(self, line: DaemonSession) -> None:
        self._line = line
        self._reported: NetworkStatus | None = None

    async def imported(self, plan: JobPlan, runner: StageRunner, *, moves: bool) -> None:
        """Report the imported network. `moves`: whether its stages may run on other hosts."""
        assert plan.network is not None
        status = _status(plan, runner, moves=moves)
        await self._line.ask(PlanNetwork(network=plan.network, trials=plan.trials, status=status), Done)
        self._reported = status

    async def changed(self, plan: JobPlan, runner: StageRunner, *, moves: bool) -> None:
        """Report the status of the network if it has changed."""
        if (status := _status(plan, runner, moves=moves)) != self._reported:
            await self._line.ask(ReportStatus(status=status), Done)
            self._reported = status


def _status(plan: JobPlan, runner: StageRunner, *, moves: bool) -> NetworkStatus:
    return NetworkStatus(
        comparison=plan.early.comparison,
        measured=plan.early.measurements,
        recalled=plan.recalled,
        movable=runner.movable if moves else (),
        divisible=runner.divisible,
    )


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
