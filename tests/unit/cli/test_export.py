"""`autosched export`, and the same from Python."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tvm")

import autosched
from autosched.cli.command_table import run
from autosched.errors import RequestError
from autosched_runtime.network_file import manifest_of
from unit.autosched_runtime.small_networks import of_weights
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("net-tuned")).parent


def test_a_folder_becomes_one_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(folder)]) == 0
    said = capsys.readouterr()
    assert "net.asn  1" in said.out
    assert "InferenceSession" in said.err
    assert (folder / "net.asn").is_file()
    assert run(["export", str(folder / "net.so"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["export"] == {"form": "file", "path": str(folder / "net.asn")}


@pytest.mark.parametrize(("form", "name"), [("folder", "net-folder"), ("c", "net-c"), ("image", "net-image")])
def test_each_form_says_how_to_try_it(form: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(folder), "--as", form]) == 0
    assert name in capsys.readouterr().err
    assert (folder / name / "card.md").is_file()


def test_a_wheel_has_a_name_and_a_version(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(folder), "--as", "wheel", "--output", str(tmp_path), "--name", "mynet", "--version", "2.1"]
    assert run(words) == 0
    assert "pip install" in capsys.readouterr().err
    assert [path.name[:10] for path in tmp_path.iterdir()] == ["mynet-2.1-"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--as", "zip"], 2, "zip"),
        (["--name", "mynet"], 2, "add  --as wheel"),
        (["--runtime", "x.whl"], 2, "add  --as image"),
        (["--as", "wheel", "--name", "a b"], 2, "--name NAME"),
        (["--licence", "none.txt"], 4, "there is no licence none.txt"),
        (["--as", "image", "--runtime", "none.whl"], 4, "there is no wheel none.whl"),
    ],
)
def test_wrong_words_are_refused(
    words: list[str], code: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(folder), *words]) == code
    assert said in capsys.readouterr().err


def test_a_module_without_samples_is_packed_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_weights(tmp_path / "net.so", 1)
    assert run(["export", str(path)]) == 0
    assert "It has no samples" in capsys.readouterr().err
    assert run(["export", str(tmp_path / "none")]) == 4


def test_networks_for_several_cpus_are_packed_together(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old").mkdir()
    other = tuned(tmp_path / "old")
    side = json.loads(other.with_suffix(".json").read_text())
    side["target"]["mcpu"] = "old"
    other.with_suffix(".json").write_text(json.dumps(side))
    assert run(["export", str(folder), str(tmp_path / "old"), "--output", str(tmp_path / "both.asn")]) == 0
    assert len(manifest_of(tmp_path / "both.asn")["variants"]) == 2
    assert run(["export", str(folder), str(folder)]) == 2
    assert "name one of them" in capsys.readouterr().err


def test_python_packs_too(folder: Path, tmp_path: Path) -> None:
    module = autosched.load_module(folder / "net.so")
    assert module.export(output=tmp_path / "one.asn") == tmp_path / "one.asn"
    assert module.export("wheel", tmp_path, name="mynet").suffix == ".whl"
    with pytest.raises(RequestError, match="'zip' is no form of a packed network: choose one of file, wheel"):
        module.export("zip")
