"""The recipes of docs/deploying.md, run as they are."""

import json
import os
import subprocess
import sys
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("tvm")

from autosched.export import Form, export
from chaos.agents import free_port
from deadlines import DEADLINE_S, until
from unit.autosched_runtime.small_networks import X
from unit.export.packed import tuned

RECIPES = Path(__file__).parents[2] / "etc" / "recipes"
WEIGHTS_MB = 96
WORKERS = 2
pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adds 1; has large weights."""
    folder = tmp_path_factory.mktemp("recipes")
    return export([tuned(folder, megabytes=WEIGHTS_MB)], Form.FILE, folder / "net.asn")


@pytest.fixture(scope="module")
def gunicorn(network: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The address of the service, and the process that has forked the workers."""
    pytest.importorskip("gunicorn")
    pytest.importorskip("uvicorn_worker")
    pytest.importorskip("fastapi")
    address = f"127.0.0.1:{free_port()}"
    words = ["--preload", "--workers", str(WORKERS), "--worker-class", "uvicorn_worker.UvicornWorker"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *words, "--bind", address, "fastapi_service:app"], cwd=RECIPES,
        env={**os.environ, "NETWORK": str(network), "HOME": str(network.parent)},
    )  # fmt: skip
    try:
        until(lambda: asked(f"http://{address}/health")[0] == 200, "the service is healthy")
        yield f"http://{address}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def asked(url: str, inputs: object = None) -> tuple[int, Any]:
    """The status and the answer; 0: nothing listens."""
    data = None if inputs is None else json.dumps(inputs).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, None


def shared_kb(pid: int) -> int:
    """Memory that a process has written, or the one that has forked it, and that both have; in kB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Shared_Dirty:")))


def test_gunicorn_preloads_the_network_whose_workers_share_its_weights(gunicorn: tuple[str, psutil.Process]) -> None:
    url, parent = gunicorn
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: asked(f"{url}/run", {"x": (X + number).tolist()}), range(64)))
    for number, (status, answer) in enumerate(found):
        assert status == 200
        assert np.array_equal(np.array(answer["x"], "float32"), X + number + 1)
    workers = parent.children()
    assert len(workers) == WORKERS
    assert all(shared_kb(worker.pid) > WEIGHTS_MB << 10 for worker in workers)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": [1.0]}, "it takes 64 numbers, and these are 1"),
        ({"y": X.tolist()}, "no input 'y'"),
        ({}, "'x' is missing"),
        ({"x": [[1.0], [1.0, 2.0]]}, "inhomogeneous"),
        ({"x": ["a"] * 64}, "could not convert"),
    ],
)
def test_the_service_says_what_does_not_fit(inputs: object, words: str, gunicorn: tuple[str, psutil.Process]) -> None:
    status, answer = asked(f"{gunicorn[0]}/run", inputs)
    assert status == 400
    assert words in answer["detail"]


class Configuration:
    """Stands for a model's configuration in Triton."""

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.batch: int | None = None

    def add_input(self, told: dict[str, Any]) -> None:
        self.inputs.append(told)

    def add_output(self, told: dict[str, Any]) -> None:
        self.outputs.append(told)

    def set_max_batch_size(self, size: int) -> None:
        self.batch = size


class Tensor:
    """One of Triton's tensors."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self.name, self._array = name, array

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array


class Answer:
    """Triton's InferenceResponse."""

    def __init__(self, output_tensors: list[Tensor], error: Exception | None = None) -> None:
        self.output_tensors, self.error = output_tensors, error


@pytest.fixture
def triton(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recipe's module beside a network, where the names of Triton's own module mean what they do there."""
    utils = types.ModuleType("triton_python_backend_utils")
    vars(utils).update(
        Tensor=Tensor, InferenceResponse=Answer, TritonError=RuntimeError,
        get_input_tensor_by_name=lambda request, name: next(one for one in request if one.name == name),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    (tmp_path / "model.py").write_bytes((RECIPES / "triton/1/model.py").read_bytes())
    (tmp_path / "net.asn").symlink_to(network)
    spec = spec_from_file_location("triton_model", tmp_path / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_triton_needs_no_configuration(triton: Any) -> None:
    found = triton.TritonPythonModel.auto_complete_config(Configuration())
    assert found.inputs == [{"name": "x", "data_type": "TYPE_FP32", "dims": [64]}]
    assert found.outputs == [{"name": "x", "data_type": "TYPE_FP32", "dims": [64]}]
    assert found.batch == 0


def test_triton_answers_each_request(triton: Any) -> None:
    model = triton.TritonPythonModel()
    model.initialize({})
    answers = model.execute([[Tensor("x", X + number)] for number in range(3)] + [[Tensor("x", X[:3])]])
    for number, answer in enumerate(answers[:3]):
        assert answer.error is None
        assert np.array_equal(answer.output_tensors[0].as_numpy(), X + number + 1)
    assert "it takes 64 numbers, and these are 3" in str(answers[3].error)
    model.finalize()
