"""Files of a job in a client's work folder."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from msgspec import Struct

from autosched.client import job_files
from autosched.model import JobSpec
from autosched.protocol import Chunk, GetBlob, Method
from unit.client.test_job_runner import open_to

MODEL = b"a model"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("", "net.onnx"), ("a b.c", "a_b-c868.c"), ("../../etc/passwd", "etc_passwd-3754"), ("...", "model-ab5d"),
        ("out", "out"), ("模型.onnx", "模型.onnx"),
    ],
)  # fmt: skip
def test_a_model_file_has_the_name_that_its_user_gave(file: str, name: str, tmp_path: Path) -> None:
    class Uploads:
        async def call(self, method: Method, kind: type[Struct]) -> Struct:
            assert isinstance(method, GetBlob)
            return Chunk(MODEL[method.offset :], len(MODEL))

    async def fetched() -> Path:
        spec = JobSpec(name="net", model=hashlib.sha256(MODEL).hexdigest(), file=file)
        return await job_files.fetch_model(open_to(Uploads()), spec, tmp_path / "model")

    path = asyncio.run(fetched())
    assert path == tmp_path / "model" / name
    assert path.read_bytes() == MODEL
