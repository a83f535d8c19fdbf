import asyncio
import hashlib
from pathlib import Path
from typing import get_type_hints

import pytest

import autosched
from autosched import api
from autosched.api.compiled_module import Origin, _here
from autosched.api.settings import Settings, Words, chosen
from autosched.errors import NotFound, RequestError


@pytest.fixture
def model(tmp_path: Path) -> autosched.Model:
    (tmp_path / "my net (v2).onnx").write_bytes(b"x")
    return autosched.load_model(tmp_path / "my net (v2).onnx", shapes={"x": [1, 3, 48, 320]})


@pytest.fixture
def module(tmp_path: Path) -> autosched.Module:
    (tmp_path / "net.so").write_bytes(b"library")
    (tmp_path / "net.json").write_bytes(b"{}")
    (tmp_path / "report.html").write_bytes(b"page")
    return autosched.load_module(tmp_path / "net.so")


def test_the_name_of_a_model_becomes_a_valid_file_name(model: autosched.Model) -> None:
    assert model.name == "my_net_v2-de30"
    assert model.shapes == {"x": (1, 3, 48, 320)}
    assert autosched.Model(Path("/a/..onnx")).name == "onnx-422a"
    assert autosched.Model(Path("/a/.onnx")).name == "onnx-e0af"


def test_the_order_of_steps_is_explained(model: autosched.Model, module: autosched.Module) -> None:
    with pytest.raises(AttributeError, match=r"a Model has no 'compile': tune it first"):
        model.compile()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"a Job has no 'run': wait for it first"):
        api.Job(1).run()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"a Module has no 'tune': it is compiled already"):
        module.tune()  # type: ignore[attr-defined]
    tuned = api.TunedModel.__new__(api.TunedModel)
    for name in ("run", "evaluate", "save"):
        with pytest.raises(AttributeError, match=rf"a TunedModel has no '{name}': compile it first"):
            getattr(tuned, name)
    with pytest.raises(AttributeError, match="object has no attribute 'colour'"):
        model.colour  # type: ignore[attr-defined]  # noqa: B018


def test_settings_are_checked_before_anything_is_started(model: autosched.Model, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="trials is -1: 0 delivers what is known"):
        model.tune(trials=-1, daemon="tcp://127.0.0.1:1")
    assert chosen({"trials": 0, "fresh": True}).fresh, "schedules by rule need no knowledge"
    with pytest.raises(RequestError, match="there is no setting colour; there are: trials, target"):
        model.tune(colour="red", daemon="tcp://127.0.0.1:1")  # type: ignore[call-arg]
    with pytest.raises(RequestError, match="goes from -100 to 100"):
        model.tune(priority=101, daemon="tcp://127.0.0.1:1")
    with pytest.raises(RequestError, match="must be more than 0"):
        model.submit(deadline_s=0, daemon="tcp://127.0.0.1:1")
    with pytest.raises(RequestError, match="learn_from is 3: it takes a list of jobs' numbers"):
        model.tune(learn_from=3, daemon="tcp://127.0.0.1:1")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="learn_from names 20 jobs: at most 8 can teach one"):
        model.tune(learn_from=range(20), daemon="tcp://127.0.0.1:1")
    with pytest.raises(RequestError, match="no goal is named 'fun'; there are: balanced, makespan, latency"):
        autosched.policy("sequential", goal="fun")
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot be written"):
        model.tune(output=tmp_path / "file", daemon="tcp://127.0.0.1:1")


def test_type_checkers_know_the_settings() -> None:
    assert get_type_hints(Words) == get_type_hints(Settings)


def test_blocking_forms_refuse_to_block_an_event_loop(model: autosched.Model) -> None:
    async def inside() -> None:
        model.tune()

    with pytest.raises(RequestError, match="_async"):
        asyncio.run(inside())


@pytest.mark.parametrize("shape", [(0, 3), (1, -1)])
def test_shapes_are_positive(model: autosched.Model, shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="every extent must be 1 or more"):
        autosched.load_model(model.path, shapes={"x": shape})


def test_a_module_is_found_by_its_folder(module: autosched.Module, tmp_path: Path) -> None:
    assert autosched.load_module(tmp_path) == module
    (tmp_path / "other.so").touch()
    with pytest.raises(RequestError, match="holds 2 modules"):
        autosched.load_module(tmp_path)


def test_a_folder_without_a_module_is_refused(module: autosched.Module, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no module"):
        autosched.load_module(tmp_path / "none.so")
    with pytest.raises(RequestError, match="is no compiled module"):
        autosched.load_module(tmp_path / "net.json")
    (tmp_path / "net.json").unlink()
    with pytest.raises(RequestError, match=r"net\.json is missing"):
        autosched.load_module(tmp_path / "net.so")


def test_a_module_is_checked_against_the_model_it_was_compiled_from(
    module: autosched.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    origin = Origin(hashlib.sha256(b"mine").hexdigest(), "net.onnx")
    assert _here(module.path, origin, None) is None
    (tmp_path / "net.onnx").write_bytes(b"another")
    assert _here(module.path, origin, None) is None, "of that name, and another one"
    with pytest.raises(RequestError, match=r"is not what net\.so was compiled from"):
        _here(module.path, origin, Path("net.onnx"))
    (tmp_path.parent / "net.onnx").write_bytes(b"mine")
    assert _here(module.path, origin, None) == tmp_path.parent / "net.onnx"
    with pytest.raises(NotFound, match=r"there is no model none\.onnx"):
        _here(module.path, origin, Path("none.onnx"))
    assert _here(module.path, Origin(), Path("net.onnx")) == Path("net.onnx"), "an older module believes what is said"
    module.path.with_suffix(".json").write_text(f'{{"model": "{"0" * 64}", "file": "../lost.onnx"}}')
    with pytest.raises(NotFound, match=r"neither here nor in a daemon that runs.*--model"):
        module.check(daemon=f"unix:{tmp_path}/none.sock")
    module.path.with_suffix(".json").write_bytes(b"{}")
    with pytest.raises(RequestError, match="does not say what it was compiled from"):
        module.check()


def test_saving_copies_all_files_of_a_module(module: autosched.Module, tmp_path: Path) -> None:
    saved = module.save(tmp_path / "saved")
    assert saved.path == tmp_path / "saved/net.so"
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {"net.so", "net.json", "report.html"}
    before = saved.path.stat().st_ino
    assert module.save(tmp_path / "saved").path.stat().st_ino != before, "a process may run the former file"
    assert module.save(tmp_path) == module, "where it lies already"
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot be written"):
        module.save(tmp_path / "file")


def test_the_package_lists_its_public_names() -> None:
    assert {"load_model", "load_module", "Model", "TunedModel", "Module"} <= set(autosched.__all__)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        autosched.colour  # noqa: B018
