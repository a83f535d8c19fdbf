"""The first command of a new user: the demo, in a terminal, with the networks that it fetches."""

import re
import tempfile
from pathlib import Path

import pytest

from terminal import bash

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")

from autosched_runtime.cpu_features import HIDDEN
from autosched_tvm.compile import targets
from autosched_tvm.compile.side_file import read_side

POLICIES = ["sequential", "synchronous", "interleaved", "predictive"]
DEMO_MAX_S = 500.0
"""Maximum time in seconds: ten times that on an idle machine."""


@pytest.mark.tvm
@pytest.mark.fetch
@pytest.mark.parametrize("hidden", [(), ("avx512f", "avx2", "dotprod")], ids=["", "on a CPU that hides features"])
def test_the_demo_runs_as_written(hidden: tuple[str, ...], tmp_path: Path) -> None:
    granted = [name for name in hidden if targets.granted().get(name)]
    if hidden and not granted:
        pytest.skip("this CPU has none of the features to hide")
    shell = bash(tmp_path, **{HIDDEN: ",".join(granted)})
    try:
        said = shell.type("autosched demo", within_s=DEMO_MAX_S)
        code = shell.type("echo $?").split()[-1]
    finally:
        shell.close()
    assert code == "0", said
    simulated, tuned, results = re.split(r"^ [23]/3 ", said, flags=re.MULTILINE)
    assert re.findall(r"^ +(\w+) +\S+ +\d+ % +\d+ % +[\d.]+x +[\d.]+x$", simulated, re.MULTILINE) == POLICIES
    assert "random weights" not in said, "its networks could not be fetched: see above what pip said"
    results, _, following = results.partition("Next:")
    for name in ("rnet", "magika"):
        headline = rf"^ +{name} +.*ONNX Runtime.*\n"
        told = re.search(headline + r"(?: +.*\n)*? +(outputs equal.*)\n +(\S+)$", results, re.MULTILINE)
        assert told, results
        assert told[1].startswith("outputs equal to ONNX Runtime")
        assert (tmp_path / told[2]).stat().st_size > 0
        side = read_side((tmp_path / told[2]).with_name(f"{name}.json"))
        assert not set(granted) & targets.features(side.target)
    assert re.search(r"busy: (host/\d+ \d+ %, )*cpu0 \d+ %", tuned)  # one core is both
    for line in ("autosched model check model.onnx", "autosched tune model.onnx", "autosched serve"):
        assert f"   {line} " in following
    assert not list(Path(tempfile.gettempdir()).glob("autosched-demo-*")), "it leaves nothing but its results"
