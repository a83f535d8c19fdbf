"""Files of a job in a client's work folder."""

import asyncio
from pathlib import Path

from autosched import file_names
from autosched.backend import INPUTS
from autosched.client.daemon_session import DaemonSession
from autosched.model import JobSpec
from autosched.wire import blob_transfer


async def fetch_inputs(line: DaemonSession, spec: JobSpec, workdir: Path) -> Path:
    """Download the model of a job, and samples of its inputs if there are any; returns the model's path."""
    model = await fetch_model(line, spec, workdir / "model")
    if spec.inputs is not None:
        await fetch(line, spec.inputs, workdir / INPUTS)
    return model


async def fetch_model(line: DaemonSession, spec: JobSpec, folder: Path) -> Path:
    """Download the model under its user's file name, which messages contain."""
    path = folder / file_names.made_from_file(spec.file or f"{spec.name}.onnx")
    path.parent.mkdir(parents=True, exist_ok=True)
    await fetch(line, spec.model, path)
    return path


async def fetch(line: DaemonSession, sha256: str, path: Path) -> None:
    """Download a blob to a file."""

    def there() -> bool:
        return path.exists() and blob_transfer.sha256(path) == sha256

    if not await asyncio.to_thread(there):
        await line.over(lambda link: blob_transfer.download(link, sha256, path))
