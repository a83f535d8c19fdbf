"""docs/plugins.md: its code runs, and it documents the whole interface."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from autosched import backend, simple
from autosched.cli.command_table import COMMANDS
from autosched.cli.plugin import plugin
from autosched.conformance import BackendContract, scaffold
from autosched.conformance.check_runner import Runner
from autosched.conformance.local_job import LocalJob
from autosched.model import JobSpec

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/plugins.md"
CHECKS = ("select_is_pure", "a_restored_search_goes_on", "latencies_are_latencies", "kill_ends_a_stage")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.+?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def quoted() -> set[str]:
    return {word for text in re.findall(r"`([^`\n]+)`", PAGE.read_text()) for word in re.findall(r"\w+", text)}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's Python files in a folder on the import path."""
    for text in blocks("python"):
        name = text.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("halves", "test_halves"):
        sys.modules.pop(name, None)


def test_the_backend_of_the_page_tunes(written: Path) -> None:
    from halves import HalvesBackend  # type: ignore[import-not-found]

    model = written / "numbers.txt"
    model.write_text(" ".join(map(str, range(500))))
    spec = JobSpec(name="numbers", model="0" * 64, trials=8)
    lines: list[str] = []
    trial = LocalJob(HalvesBackend(), spec, model, written / "job", lines.append)
    trial.run()
    assert trial.evaluation is not None
    assert trial.evaluation.outputs_equal
    assert (written / "job/out/numbers.json").exists()
    assert any("1 failed, build error: two sorted parts are not supported" in line for line in lines)


def test_the_test_of_the_page_passes(written: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    from test_halves import TestHalves  # type: ignore[import-not-found]

    with Runner(TestHalves.subject(tmp_path_factory.mktemp("model"))) as runner:
        for check in CHECKS:
            verdict = runner.check(check)
            assert verdict.state == "ok", verdict.lines()


def test_the_entry_point_of_the_page_is_that_of_the_template() -> None:
    (text,) = blocks("toml")
    template = tomllib.loads((scaffold.TEMPLATE / "pyproject.toml").read_text())
    assert tomllib.loads(text)["project"]["entry-points"] == template["project"]["entry-points"]


def members(kind: type) -> set[str]:
    return {name for name in (*vars(kind), *getattr(kind, "__annotations__", {})) if not name.startswith("_")}


def test_every_member_of_the_interface_is_told() -> None:
    kinds = (backend.Backend, backend.Session, backend.Tuner, simple.SimpleBackend)
    missing = {f"{kind.__name__}.{name}" for kind in kinds for name in members(kind) - quoted()}
    assert missing == {"SimpleBackend.read"}  # `open` uses it
    for kind in kinds[:3]:
        assert f"`{kind.__name__}`" in PAGE.read_text()


def test_every_default_of_the_checks_is_told() -> None:
    (counts,) = re.findall(r"^\| `count`, .*$", PAGE.read_text(), re.MULTILINE)
    (times,) = re.findall(r"^\| `kill_s`, .*$", PAGE.read_text(), re.MULTILINE)
    kind = BackendContract
    assert re.findall(r" (\d+)", counts) == [str(n) for n in (kind.count, kind.rounds, kind.growth_bytes // 2**20)]
    assert re.findall(r" (\d+) s", times) == [f"{seconds:g}" for seconds in (kind.kill_s, kind.deadline_s)]


def test_every_field_of_an_earlier_job_is_told() -> None:
    assert set(backend.Earlier.__struct_fields__) <= quoted()


def test_every_option_is_told() -> None:
    text = PAGE.read_text()
    for command in plugin.commands.values():
        assert f"plugin {command.name}" in text
        for parameter in command.params:
            for option in (word for word in parameter.opts if word.startswith("--")):
                assert f"`{option}`" in text or f" {option}" in text, option
    attributes = {name for name in BackendContract.__annotations__ if not name.startswith("_")}
    assert attributes <= quoted()


def test_commands_of_the_page_exist() -> None:
    named = re.findall(r"autosched (\w+)(?: (\w+))?", PAGE.read_text())
    assert named
    for command, second in named:
        if command in COMMANDS and command == "plugin":
            assert second in plugin.commands
    indented = re.findall(r"^    (?:.*&& )?autosched (\w+)", PAGE.read_text(), re.MULTILINE)
    assert set(indented) <= COMMANDS.keys()


def test_the_history_ends_with_the_version_that_there_is() -> None:
    versions = re.findall(r"^\| (\d+)\.(\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert tuple(map(int, versions[-1])) == backend.BACKEND_API


def test_paths_of_the_page_exist() -> None:
    root = PAGE.parents[1]
    said = [word for text in re.findall(r"`([^`\n]+)`", PAGE.read_text()) for word in re.findall(r"[\w./-]+", text)]
    paths = [word for word in said if word.startswith(("src/", "plugins/", "tests/"))]
    assert paths
    assert not [path for path in paths if not (root / path).exists()]
