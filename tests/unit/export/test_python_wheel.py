"""A network as a wheel: pip installs it, and its package runs it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from autosched.errors import RequestError
from autosched.export import Form, export
from deadlines import DEADLINE_S
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm
PROGRAM = """
import numpy as np
import my_net
x = np.arange(64, dtype="float32")
assert (my_net.session().run(None, {"x": x})[0] == x + 1).all()
assert (my_net.load(threads=1).run([x])[0] == x + 1).all()
print(my_net.__version__, sorted({name.partition(".")[0] for name in __import__("sys").modules} & {"tvm", "msgspec"}))
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("net-tuned"))


def test_pip_installs_it_and_its_package_runs(module: Path, tmp_path: Path) -> None:
    wheel = export([module], Form.WHEEL, tmp_path / "wheels", name="My-Net", version="1.4.0")
    assert wheel.name == f"my_net-1.4.0-py3-none-manylinux_2_27_{os.uname().machine}.whl"
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site, wheel]
    subprocess.run(pip, check=True, timeout=DEADLINE_S)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, timeout=DEADLINE_S, env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "1.4.0 []"
    metadata = (site / "my_net-1.4.0.dist-info/METADATA").read_text()
    assert "Name: My-Net\nVersion: 1.4.0\n" in metadata
    assert "Requires-Dist: autosched-runtime>=" in metadata
    assert "## Verification" in metadata
    assert (site / "my_net-1.4.0.dist-info/licenses/Apache-2.0.txt").is_file()


def test_the_same_network_gives_the_same_wheel(module: Path, tmp_path: Path) -> None:
    one, other = (export([module], Form.WHEEL, tmp_path / name) for name in ("one", "other"))
    assert one.name.startswith("net-1.0-py3-none-")
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[-1] == "net-1.0.dist-info/RECORD"


@pytest.mark.parametrize(
    "name", ["1net", "a b", "net/x", "-net", "net-", "../net", "import", "json", "numpy", "ü", "a\n"]
)
def test_names_that_are_no_package_are_refused(name: str, module: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--name NAME"):
        export([module], Form.WHEEL, tmp_path, name=name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", ["", "one", "1..2", "1.0-x/y", "v1", "1.0 "])
def test_versions_that_pip_refuses_are_refused(version: str, module: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--version 1\.4\.0"):
        export([module], Form.WHEEL, tmp_path, version=version)


@pytest.mark.parametrize("version", ["0", "1.4.0", "2026.11", "1.0rc1", "1.0.post2", "1!2.0.dev3+local.5"])
def test_versions_of_all_kinds_are_taken(version: str, module: Path, tmp_path: Path) -> None:
    assert f"-{version}-py3" in export([module], Form.WHEEL, tmp_path, version=version).name
