"""PyTorch programs against PyTorch. Needs the extra [torch]."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra [torch] is not installed")

import torch
import tvm
from tvm import relax

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile import model_sources
from autosched_tvm.compile.frontend.model_file import FileKind
from autosched_tvm.evaluation.non_onnx_reference import OtherReference

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]  # PyTorch warns about its own code


class Net(torch.nn.Module):  # type: ignore[misc] # PyTorch's types are not looked at
    """A convolution with a normalisation, and two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, picture: Any) -> dict[str, Any]:
        """Returns features and scores."""
        features = torch.relu(self.norm(self.conv(picture))).mean((2, 3))
        return {"scores": self.last(features), "features": features}


def exported(path: Path, net: Any, batch: int = 1, dynamic: Any = None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, (torch.randn(batch, 3, 8, 8),), dynamic_shapes=dynamic)
        torch.export.save(program, str(path))
    return path


def test_a_program_has_the_outputs_of_pytorch(tmp_path: Path) -> None:
    net = Net().eval()
    ready = model_sources.prepare(exported(tmp_path / "net.pt2", net), {})
    assert ready.format.startswith("PyTorch")
    assert ready.source.outputs == ("scores", "features")
    assert [(one.name, one.shape) for one in ready.source.inputs] == [("picture", (1, 3, 8, 8))]
    target = tvm.target.Target("llvm")
    with target:
        executable = tvm.compile(ready.source.cleaned(target), target)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype("float32")
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    expected = net(torch.from_numpy(x))
    for want, got in zip((expected["scores"], expected["features"]), found, strict=True):
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_an_unknown_batch_becomes_1_or_the_given_size(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    path = exported(tmp_path / "net.pt2", Net().eval(), 2, ({0: batch},))
    assert model_sources.prepare(path, {}).source.inputs[0].shape == (1, 3, 8, 8)
    assert model_sources.prepare(path, {"picture": (4, 3, 8, 8)}).source.inputs[0].shape == (4, 3, 8, 8)
    with pytest.raises(RequestError, match="does not fit"):
        model_sources.prepare(path, {"picture": (4, 3, 9, 8)})


def test_a_model_in_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRejected, match=r"model\.eval"):
        model_sources.prepare(exported(tmp_path / "net.pt2", Net().train(), 2), {})


def test_weights_alone_are_refused(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "net.pt")
    with pytest.raises(ModelRejected, match=r"torch\.export\.save"):
        model_sources.prepare(tmp_path / "net.pt", {})


def test_pytorch_gives_the_expected_outputs(tmp_path: Path) -> None:
    net = Net().eval()
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype("float32")
    reference = OtherReference(exported(tmp_path / "net.pt2", net), FileKind.TORCH, 1)
    assert reference.name.startswith("PyTorch ")
    wanted = net(torch.from_numpy(x))["scores"].detach().numpy()
    np.testing.assert_allclose(reference.expected({"picture": x}).outputs[0], wanted, rtol=1e-5, atol=1e-5)
