"""A board behind a cable that is slow, loses packets, or is cut during a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnx")

import onnx

import wires
from autosched.model import Purpose
from deadlines import until
from e2e.test_boards import GUARD, KEY, submitted
from integration.lab import Lab, lab
from nets import small_net
from rpc_server import RpcServer
from wires import Wire, wire

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(bool(wires.possible()), reason=wires.possible())]
TRIALS = 16


@pytest.fixture
def cable() -> Iterator[Wire]:
    with wire(2, delay_s=0.005, loss=0.005) as made:
        yield made


@pytest.fixture
def there(tmp_path: Path, cable: Wire) -> Iterator[Lab]:
    onnx.save(small_net(), tmp_path / "net.onnx")
    with RpcServer(tmp_path, KEY, ours=True, cable=cable) as server:
        device = f'[[device]]\nname = "board0"\nkind = "pi4"\nrpc = "{server.address}"\nrpc_key = "{KEY}"\n'
        with lab(tmp_path, device + 'target = "llvm -num-cores=1"\n' + GUARD) as made:
            yield made


def test_a_cut_in_the_middle_of_a_session(there: Lab, cable: Wire, tmp_path: Path) -> None:
    """The cable is slow and loses packets before and after the cut, too."""
    job = submitted(there, tmp_path / "net.onnx")
    there.wait(job, "trials", 2)
    cable.cut()
    until(lambda: "quarantined" in (tmp_path / "daemon.log").read_text(), "the board cannot be reached")
    cable.mend()
    there.wait(job, "trials", TRIALS)
    records = [record for record in there.records(job) if record.purpose is Purpose.TRIAL]
    tried = [(record.task, record.candidate) for record in records]
    assert len(tried) == len(set(tried)) == TRIALS, "nothing was lost, or measured twice"
    assert all(record.failure is None for record in records), "no candidate is blamed for the cable"
