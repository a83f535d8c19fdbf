"""Templates of other packages: found by entry points, checked, and left out if they fail."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")
import tvm
from tvm import te

from autosched.model import TaskInfo
from autosched_backend_autotvm import new_template, template_matching
from autosched_backend_autotvm.config_space import Knob
from autosched_backend_autotvm.options import Options
from autosched_backend_autotvm.search_method import AutoTvmMethod
from autosched_backend_autotvm.template_check import check
from autosched_backend_autotvm.templates import user_templates
from autosched_backend_autotvm.templates.user_templates import Failures
from autosched_tvm.compile.candidate_build import replay
from autosched_tvm.compile.task_extraction import hash_of
from autosched_tvm.tuning.search_method import SearchContext
from unit.autotvm import kernels

sys.path.append(str(new_template.FOLDER))

from autosched_template_mypattern import MypatternTemplate

pytestmark = pytest.mark.tvm

CPU = kernels.CPU


def sums(rows: int = 12, columns: int = 64) -> Any:
    matrix, column = te.placeholder((rows, columns), name="matrix"), te.reduce_axis((0, columns), name="column")
    result = te.compute((rows,), lambda row: te.sum(matrix[row, column], axis=column), name="sums")
    return tvm.IRModule({"main": te.create_prim_func([matrix, result])})


class Unrolls:
    """Unrolls the last loop of any kernel."""

    def knobs(self, workload: Any, target: Any) -> Sequence[Knob] | None:
        return (Knob("unroll", (0, 1)),)

    def schedule(self, schedule: Any, config: Mapping[str, Any]) -> None:
        block = schedule.get_child_blocks(schedule.get_sblock("root"))[-1]
        if config["unroll"]:
            schedule.unroll(schedule.get_loops(block)[-1])

    def admit(self, config: Mapping[str, Any]) -> str | None:
        return None if config["unroll"] else "no loop is changed"


class Fails(Unrolls):
    def knobs(self, workload: Any, target: Any) -> Sequence[Knob] | None:
        raise KeyError("stride")


class NamesTwice(Unrolls):
    def knobs(self, workload: Any, target: Any) -> Sequence[Knob] | None:
        return (Knob("unroll", (0, 1)), Knob("unroll", (0, 2)))


class AppliesNowhere(Unrolls):
    def schedule(self, schedule: Any, config: Mapping[str, Any]) -> None:
        schedule.get_sblock("no such block")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(user_templates, "failures", Failures())
    user_templates.installed.cache_clear()
    yield
    user_templates.installed.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, **templates: object) -> None:
    """Installs objects as packages would."""

    class Entry:
        def __init__(self, found: object) -> None:
            self._found = found

        def load(self) -> object:
            if isinstance(self._found, Exception):
                raise self._found
            return self._found

    entries = {name: Entry(found) for name, found in templates.items()}
    monkeypatch.setattr(user_templates, "installed_plugins", lambda _: entries)


def test_the_scaffold_is_a_working_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new_template.main(["row_sums", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "autosched-template-row-sums"
    assert str(folder) in capsys.readouterr().out
    text = (folder / "pyproject.toml").read_text()
    assert 'row_sums = "autosched_template_row_sums:RowSumsTemplate"' in text
    assert "class RowSumsTemplate" in (folder / "autosched_template_row_sums/__init__.py").read_text()
    assert not [path for path in folder.rglob("*") if "mypattern" in path.name or "mypattern" in str(path.parent.name)]
    assert new_template.main(["row_sums", "--into", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(12, 64), (1, 7), (5, 1)], ids=str)
def test_the_template_of_the_scaffold_is_right(shape: tuple[int, int]) -> None:
    assert check(MypatternTemplate(), sums(*shape), CPU) > 0


def test_an_installed_template_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, row_sums=MypatternTemplate)
    site = SearchContext(TaskInfo(task=1, name="sums", workload="00ff"), sums(), CPU, 7, 1)
    method = AutoTvmMethod(Options())
    first = method.search(site).select(4)
    assert len(set(first)) == 4
    remembered = [json.loads(candidate)[-1] for candidate in first]
    assert {one["template"] for one in remembered} == {"row_sums"}
    assert all(one["config"].keys() == {"rows", "parts", "unroll"} for one in remembered)
    assert len({hash_of(replay(site.workload, one).mod) for one in first}) == 4
    assert method.notes == []
    again = method.search(site)
    again.update([(candidate, [1e-3]) for candidate in first])
    assert not set(first) & set(again.select(4)), "it goes on after measured ones"


def test_a_template_goes_before_those_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    product = kernels.product(16, 32, 48)
    install(monkeypatch, mine=Unrolls(), row_sums=MypatternTemplate)
    found = template_matching.find(product, CPU).template
    assert found is not None
    assert found.name == "mine"
    assert [found.space().admits({"unroll": value}) for value in (0, 1)] == ["no loop is changed", None]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (Fails(), "template mine was not used: KeyError: 'stride'"),
        (NamesTwice(), "template mine was not used: ValueError: two knobs have the same name: unroll, unroll"),
        (ImportError("no package named torch"), "template mine was not used: ImportError: no package named torch"),
        (Fails, "template mine was not used: KeyError: 'stride'"),
    ],
    ids=["fails", "two equal knobs", "import", "a class"],
)
def test_a_template_that_fails_is_left_out_and_named(
    template: object, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, mine=template)
    for _ in range(2):
        found = template_matching.find(kernels.product(16, 32, 48), CPU).template
        assert found is not None
        assert found.name == "matmul_nn.llvm"
    assert AutoTvmMethod(Options()).notes == [told]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (Fails(), "stride"),
        (AppliesNowhere(), "none of 8 configurations can be applied"),
        (MypatternTemplate(), "does not match"),
    ],
    ids=["fails", "applies nowhere", "does not match"],
)
def test_the_check_says_what_is_wrong(template: Any, told: str) -> None:
    workload = sums() if not isinstance(template, MypatternTemplate) else kernels.product(16, 32, 48)
    with pytest.raises((AssertionError, KeyError), match=told):
        check(template, workload, CPU)
