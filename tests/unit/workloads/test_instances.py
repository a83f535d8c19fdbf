"""Instance files: they are read as written, and errors name file, instance and job."""

import json
from pathlib import Path
from typing import Any

import pytest

from autosched.errors import RequestError
from autosched.workloads.bounds import lower_bound_s
from autosched.workloads.instances import Instance, parse, read, standard, write


def job(**changes: Any) -> dict[str, Any]:
    return {"host": 0, "arrival_s": 0.0, "iterations": [[1.0, 2.0, 3.0]], **changes}


def instance(**changes: Any) -> dict[str, Any]:
    return {"name": "two", "hosts": 1, "devices": 1, "jobs": [job(), job()], **changes}


def text(*instances: Any, **more: Any) -> str:
    return json.dumps({"instances": list(instances), **more})


def test_the_standard_instances_are_there_with_their_bounds() -> None:
    found = standard()
    assert len(found) == 26
    assert {i.hosts for i in found} == {1, 2, 4}
    for one in found:
        assert one.best_known_s is not None
        assert one.lower_bound_s is not None
        assert one.lower_bound_s <= one.best_known_s
        assert one.proven_bound_s is not None
        assert one.proven_bound_s <= one.best_known_s + 0.05


@pytest.mark.parametrize("one", standard(), ids=lambda one: one.name)
def test_our_bound_is_that_of_the_file_or_a_tighter_one_that_still_holds(one: Instance) -> None:
    assert one.lower_bound_s is not None
    assert one.best_known_s is not None
    assert one.lower_bound_s - 0.05 <= lower_bound_s(one) <= one.best_known_s + 0.05


def test_bounds_may_be_missing() -> None:
    (one,) = parse(text(instance(), about="held out", note="hello"), "file")
    assert (one.best_known_s, one.lower_bound_s) == (None, None)
    assert [j.iterations for j in one.jobs] == [((1.0, 2.0, 3.0),)] * 2


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = standard()
    write(tmp_path / "copy.json", found, "a copy")
    assert read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (instance(jobs=[job(), job(host=1)]), "here: instance 'two', job 1: it is on host 1, but there is host 0 only"),
        (instance(jobs=[job(host=-1)]), "here: instance 'two', job 0: Expected `int` >= 0 in host"),
        (
            instance(jobs=[job(iterations=[[1, 2, 3], [1, -2, 3]])]),
            r"'two', job 0: Expected `float` >= 0.0 in iterations[1][1]",
        ),
        (instance(jobs=[job(iterations=[[1, float("nan"), 3]])]), "'two', job 0: Expected `float` >= 0.0"),
        (instance(jobs=[job(iterations=[[1, float("inf"), 3]])]), "'two', job 0: Expected `float` <= 1000000000.0"),
        (instance(jobs=[job(iterations=[[1, 2]])]), "'two', job 0: Expected `array` of length 3"),
        (instance(jobs=[job(iterations=[["1", 2, 3]])]), "'two', job 0: Expected `float`, got `str`"),
        (instance(jobs=[job(iterations=[[0, 0, 0]])]), "'two', job 0: all its steps take 0 s"),
        (instance(jobs=[job(iterations=[])]), "'two', job 0: Expected `array` of length >= 1 in iterations"),
        (instance(jobs=[job(arival_s=3.0)]), "'two', job 0: Object contains unknown field `arival_s`"),
        (instance(jobs=[{"host": 0}]), "'two', job 0: Object missing required field `iterations`"),
        (instance(jobs=[]), "'two': Expected `array` of length >= 1 in jobs"),
        (instance(hosts=0), "'two': Expected `int` >= 1 in hosts"),
        (instance(best_known_s=-1), "'two': Expected `float` > 0.0 in best_known_s"),
        (instance(best_know_s=3), "'two' has an unknown field 'best_know_s'; did you mean 'best_known_s'?"),
        (instance(name=""), "here: instance 0: Expected `str` of length >= 1 in name"),
        (3, "here: instance 0: Expected `object`, got `int`"),
    ],
)
def test_what_is_wrong_is_named(wrong: Any, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(text(wrong), "here")
    assert words in str(caught.value)


@pytest.mark.parametrize("whole", ["", "[]", "{}", '{"instances": []}', '{"instances": 3}', "[" * 100_000, "nonsense"])
def test_a_file_without_instances_is_refused(whole: str) -> None:
    with pytest.raises(RequestError, match=r"^here (is no JSON|holds no instances)"):
        parse(whole, "here")


def test_names_are_unique() -> None:
    with pytest.raises(RequestError, match="two instances are named 'two'"):
        parse(text(instance(), instance()), "here")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"gone\.json cannot be read \(No such file"):
        read(tmp_path / "gone.json")
    (tmp_path / "model.onnx").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="is no text"):
        read(tmp_path / "model.onnx")
