"""A network in one file: its parts, its bytes, and files that are wrong."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

import autosched_runtime
from autosched.errors import NotFound, RequestError
from autosched.export import Form, export, network_file
from autosched_runtime.errors import FileMissing, NetworkError
from autosched_runtime.network_file import manifest_of
from unit.autosched_runtime.small_networks import X, of_weights
from unit.export.packed import MODEL, tuned

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("net-tuned"))


@pytest.fixture(scope="module")
def packed(module: Path) -> Path:
    return export([module], Form.FILE)


def test_the_file_is_an_archive_whose_parts_begin_on_pages(packed: Path) -> None:
    assert packed.name == "net.asn"
    manifest = manifest_of(packed)
    content = packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "manifest.json"
        assert set(archive.namelist()[1:]) == set(manifest["entries"])
        for name, entry in manifest["entries"].items():
            assert entry["at"] % 4096 == 0
            assert content[entry["at"] : entry["at"] + entry["bytes"]] == archive.read(name)
        assert {"card.md", "weights/0.bin", "NOTICE", "LICENSES/Apache-2.0.txt"} < set(archive.namelist())


def test_the_network_runs_from_it(packed: Path, module: Path) -> None:
    network = autosched_runtime.load(packed)
    assert np.array_equal(network.run([X])[0], X + 1)
    assert np.array_equal(autosched_runtime.load(module).run([X])[0], X + 1)
    session = autosched_runtime.InferenceSession(packed)
    assert np.array_equal(session.run(None, {"x": X})[0], X + 1)


def test_its_samples_are_found_in_it_and_beside_the_library(packed: Path, module: Path) -> None:
    for path in (packed, module):
        network = autosched_runtime.load(path)
        first, second = network.samples()
        assert np.array_equal(first.inputs[0], X)
        assert list(second.differing(network.run(second.inputs))) == []
        assert [number for number, *_ in first.differing([X])] == [0]


def test_a_network_without_samples_has_none(tmp_path: Path) -> None:
    path = of_weights(tmp_path / "net.so", 1)
    assert autosched_runtime.load(path).samples() == []
    assert autosched_runtime.load(export([path], Form.FILE)).samples() == []


def test_the_network_of_a_model_is_found_in_it(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autosched_runtime import networks_by_model

    monkeypatch.setattr(networks_by_model, "_digest", lambda _file: MODEL)
    (tmp_path / "net.onnx").write_bytes(b"a model")
    (tmp_path / "net.asn").write_bytes(packed.read_bytes())
    assert networks_by_model.network_of(tmp_path / "net.onnx") == tmp_path / "net.asn"
    assert networks_by_model.network_of(tmp_path) == tmp_path / "net.asn"
    assert networks_by_model.network_of(tmp_path / "net.asn") == tmp_path / "net.asn"
    monkeypatch.setenv(networks_by_model.VARIABLE, str(tmp_path))
    assert networks_by_model.network_of(b"a model") == tmp_path / "net.asn"


def test_the_same_network_gives_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    other = tuned(tmp_path)
    (tmp_path / "report.json").write_bytes((packed.parent / "report.json").read_bytes())
    os.utime(other, (0, 0))
    umask = os.umask(0o077)
    try:
        again = export([other], Form.FILE, tmp_path / "other.asn")
    finally:
        os.umask(umask)
    assert again.read_bytes() == packed.read_bytes()


def test_the_manifest_promises_the_latency(packed: Path) -> None:
    promise = manifest_of(packed)["variants"][0]["promise"]
    assert promise["median_s"] == 0.016
    assert promise["rival"] == "ONNX Runtime"
    assert promise["ratio"] == pytest.approx(0.016 / 0.0046)


def test_a_report_of_another_job_promises_nothing(module: Path, tmp_path: Path) -> None:
    other = tuned(tmp_path)
    told = json.loads((tmp_path / "report.json").read_text())
    told["job"]["spec"] = {"name": "net", "model": "b" * 64}
    (tmp_path / "report.json").write_text(json.dumps(told))
    assert manifest_of(export([other], Form.FILE))["variants"][0]["promise"] is None
    (tmp_path / "report.json").write_text("no report")
    assert manifest_of(export([other], Form.FILE))["variants"][0]["promise"] is None


def test_the_models_licence_is_in_it(module: Path, tmp_path: Path) -> None:
    (tmp_path / "MIT.txt").write_text("do what you like")
    packed = export([module], Form.FILE, tmp_path / "net.asn", licence=tmp_path / "MIT.txt")
    with zipfile.ZipFile(packed) as archive:
        assert archive.read("LICENSES/model.txt") == b"do what you like"
        assert b"LICENSES/model.txt" in archive.read("card.md")
    with pytest.raises(NotFound, match="there is no licence"):
        export([module], Form.FILE, tmp_path / "net.asn", licence=tmp_path / "none")


@pytest.mark.parametrize("at", [20, 60, 5000, 30_000, 1 << 19, -1])
def test_a_wrong_bit_in_what_is_read_is_told(at: int, packed: Path, tmp_path: Path) -> None:
    content = bytearray(packed.read_bytes())
    if at == -1:  # of the weights
        entry = manifest_of(packed)["entries"]["weights/0.bin"]
        at = entry["at"] + entry["bytes"] - 1
    content[at] ^= 4
    copy = tmp_path / "net.asn"
    copy.write_bytes(content)
    if at == 60:  # padding, which is not read
        assert np.array_equal(autosched_runtime.load(copy).run([X])[0], X + 1)
        return
    with pytest.raises(NetworkError, match=r"^[^\n]*net\.asn[^\n]*damaged[^\n]*$"):
        autosched_runtime.load(copy)


WRONG: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _content: b"", "is no network"),
    "of text": (lambda _content: b"hello " * 100, "is no network"),
    "cut in the manifest": (lambda content: content[:5000], "manifest.json is not what was written"),
    "cut in the weights": (lambda content: content[:200_000], "is cut off"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_file_that_is_wrong_is_refused(
    change: Callable[[bytes], bytes], words: str, packed: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.asn").write_bytes(change(packed.read_bytes()))
    with pytest.raises(NetworkError, match=words):
        autosched_runtime.load(tmp_path / "net.asn")


def test_other_archives_and_names_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "net.asn", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(NetworkError, match=r"its first entry is no manifest\.json"):
        autosched_runtime.load(tmp_path / "net.asn")
    with pytest.raises(FileMissing, match="there is no network"):
        autosched_runtime.load(tmp_path / "none.asn")
    (tmp_path / "folder.asn").mkdir()
    with pytest.raises(NetworkError, match="cannot be read: Is a directory"):
        autosched_runtime.load(tmp_path / "folder.asn")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("", "names no network"),
        ("[]", "names no network"),
        ('{"variants": []}', "names no network"),
        ('{"variants": 3}', "names no network"),
        ('{"variants": [3]}', "does not describe"),
        ('{"variants": [{}]}', "it has no 'name'"),
        ('{"variants": [{"format": 9}]}', "has format 9, and this runtime reads 2.*Update autosched-runtime"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(manifest: str, words: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "net.asn", "w") as archive:
        archive.writestr("manifest.json", manifest)
    with pytest.raises(NetworkError, match=words):
        autosched_runtime.load(tmp_path / "net.asn")


def test_a_network_that_is_damaged_is_not_packed(module: Path, tmp_path: Path) -> None:
    for suffix in (".so", ".json"):
        (tmp_path / f"net{suffix}").write_bytes(module.with_suffix(suffix).read_bytes())
    os.truncate(tmp_path / "net.so", (tmp_path / "net.so").stat().st_size - 1)
    with pytest.raises(RequestError, match="is cut off"):
        export([tmp_path / "net.so"], Form.FILE)
    assert not (tmp_path / "net.asn").exists()
    with pytest.raises(NotFound, match="there is no compiled module"):
        export([tmp_path / "none.so"], Form.FILE)


def test_a_network_that_is_too_large_is_refused(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_file, "BYTES_MAX", 1 << 20)
    with pytest.raises(RequestError, match=r"4 GiB at most:  --as folder"):
        export([module], Form.FILE)


def test_a_place_that_cannot_be_written_is_told(module: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for form in (Form.FILE, Form.WHEEL, Form.FOLDER):
        with pytest.raises(RequestError, match=r"cannot be written: .*Choose another:  --output"):
            export([module], form, tmp_path / "file" / "net.asn")
