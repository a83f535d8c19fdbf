"""Networks for several CPUs in one file."""

import json
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

import autosched_runtime
from autosched.errors import RequestError
from autosched.export import Form, export
from autosched_runtime import cpu_features
from autosched_runtime.errors import NetworkError
from autosched_runtime.network_file import manifest_of
from autosched_tvm.compile.side_file import side_of
from unit.autosched_runtime.small_networks import X, of_weights, tuned_for
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm
ODD = "a-feature"
"""A feature that a test grants or withholds."""


def variant(folder: Path, cpu: str, features: list[str], **more: object) -> Path:
    """A network for a CPU."""
    folder.mkdir()
    path = tuned(folder)
    side = json.loads(path.with_suffix(".json").read_text())
    side["features"] = features
    side["target"] |= {"mcpu": cpu, **more}
    path.with_suffix(".json").write_text(json.dumps(side))
    return path


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Networks for an old and a new CPU."""
    folder = tmp_path_factory.mktemp("variants")
    return [variant(folder / "old", "old", []), variant(folder / "new", "new", [ODD])]


@pytest.fixture(scope="module")
def packed(modules: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(modules, Form.FILE, tmp_path_factory.mktemp("packed") / "net.asn")


def grant(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    monkeypatch.setattr(cpu_features, "granted", lambda: {ODD: has})


def test_a_network_of_a_board_is_packed_on_another_machine(modules: list[Path], tmp_path: Path) -> None:
    other = variant(tmp_path / "board", "cortex-a72", [], mtriple="riscv64-linux-gnu")
    content = bytearray(other.read_bytes())
    content[18:20] = (243).to_bytes(2, "little")  # ELF's number of RISC-V
    other.write_bytes(content)
    assert [str(tensor) for tensor in side_of(other.with_suffix("")).inputs]
    with pytest.raises(NetworkError, match="was compiled for riscv64, and this is"):
        autosched_runtime.load(other)
    network = autosched_runtime.load(export([modules[0], other], Form.FILE, tmp_path / "net.asn"))
    assert np.array_equal(network.run([X])[0], X + 1)


@pytest.mark.parametrize(("has", "cpu"), [(True, "new"), (False, "old")])
def test_the_cpu_decides_which_network_runs(has: bool, cpu: str, packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grant(monkeypatch, has)
    network = autosched_runtime.load(packed)
    assert network.description.target["mcpu"] == cpu
    assert np.array_equal(network.run([X])[0], X + 1)
    assert len(network.samples()) == 2


def test_equal_weights_are_in_the_file_once(packed: Path, modules: list[Path], tmp_path: Path) -> None:
    alone = export([modules[0]], Form.FILE, tmp_path / "net.asn")
    assert packed.stat().st_size < alone.stat().st_size + (1 << 18), "the weights alone have a megabyte"
    manifest = manifest_of(packed)
    assert [name for name in manifest["entries"] if name.startswith("weights/")] == ["weights/0.bin"]


def test_each_variant_reads_its_own_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [variant(tmp_path / "old", "old", []), variant(tmp_path / "new", "new", [ODD])]
    content = bytearray(paths[0].read_bytes())  # other weights: twos in place of ones
    side = json.loads(paths[0].with_suffix(".json").read_text())
    (part,) = side["weights"]["parts"]
    twos = np.full(part["bytes"] // 4, 2, "float32").tobytes()
    content[part["at"] :] = twos
    paths[0].write_bytes(content)
    packed = export(paths, Form.FILE, tmp_path / "net.asn")
    for has, added in ((True, 1), (False, 2)):
        grant(monkeypatch, has)
        network = autosched_runtime.load(packed)
        assert np.array_equal(network.run([X])[0], X + added)
        assert len(network.description.weight_parts) == 1
    assert packed.stat().st_size > 2 * part["bytes"]


def test_the_order_of_the_words_does_not_matter(packed: Path, modules: list[Path], tmp_path: Path) -> None:
    other = export(modules[::-1], Form.FILE, tmp_path / "net.asn")
    assert other.read_bytes() == packed.read_bytes()


def test_a_cpu_that_none_fits_is_told_what_the_least_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [variant(tmp_path / "one", "one", [ODD]), variant(tmp_path / "two", "two", [ODD, "more"])]
    packed = export(paths, Form.FILE, tmp_path / "net.asn")
    monkeypatch.setattr(cpu_features, "granted", lambda: {ODD: False, "more": False})
    with pytest.raises(NetworkError, match=f"was compiled for a CPU with {ODD}, which"):
        autosched_runtime.load(packed)


def test_machines_of_another_kind_get_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = platform.machine()
    foreign = "aarch64" if here == "x86_64" else "x86_64"
    paths = [
        variant(tmp_path / "here", "here", []),
        variant(tmp_path / "there", "there", [], mtriple=f"{foreign}-linux-gnu"),
    ]
    packed = export(paths, Form.FILE, tmp_path / "net.asn")
    assert autosched_runtime.load(packed).description.target["mcpu"] == "here"
    assert f"manylinux_2_27_{foreign}" in export(paths, Form.WHEEL, tmp_path).name
    alone = export(paths[1:], Form.FILE, tmp_path / "there.asn")
    with pytest.raises(NetworkError, match=rf"there\.asn was compiled for {foreign}, and this is {here}"):
        autosched_runtime.load(alone)


def test_networks_that_do_not_belong_together_are_refused(modules: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"two of these networks are for .*-old, with inputs of 64: name one"):
        export([modules[0], modules[0]], Form.FILE, tmp_path / "net.asn")
    other = of_weights(tmp_path / "net.so", 1)
    with pytest.raises(RequestError, match="compiled from different models"):
        export([modules[0], other], Form.FILE, tmp_path / "net.asn")
    (tmp_path / "changed").mkdir()
    shutil.copy(modules[1], tmp_path / "changed")
    side = json.loads(modules[1].with_suffix(".json").read_text())
    side["inputs"][0]["name"] = "y"
    (tmp_path / "changed/net.json").write_text(json.dumps(side))
    with pytest.raises(RequestError, match=r"differ in their interface: 'y' \(float32 64\), .*; 'x' \(float32 64\)"):
        export([modules[0], tmp_path / "changed/net.so"], Form.FILE, tmp_path / "net.asn")
    with pytest.raises(RequestError, match="a folder holds one network"):
        export(modules, Form.FOLDER, tmp_path / "folder")


def test_a_network_without_outside_weights_is_packed_too(tmp_path: Path) -> None:
    path = tuned_for(of_weights(tmp_path / "net.so", 1, inside=True), 1)
    packed = export([path], Form.FILE, tmp_path / "net.asn")
    assert np.array_equal(autosched_runtime.load(packed).run([X])[0], X + 1)
