"""The starter book: its form, and what searches and jobs without trials take from it."""

from pathlib import Path

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import msgspec  # noqa: E402
import tvm  # noqa: E402

from autosched_backend_autotvm import starter_book, template_matching  # noqa: E402
from autosched_backend_autotvm.config_space import Config, ConfigSpace  # noqa: E402
from autosched_backend_autotvm.ranked_configs import of_book  # noqa: E402
from autosched_backend_autotvm.seed_configurations import adapted  # noqa: E402
from autosched_backend_autotvm.starter_book import Chapter, book, configs, text_of  # noqa: E402
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler  # noqa: E402
from autosched_tvm.compile import targets  # noqa: E402
from unit.autotvm import kernels  # noqa: E402

CHAPTER = Chapter(3, (0.9, 0.95), ({"tile": 4, "order": "n m"}, {"tile": 8, "pair": (2, 1)}))
BOOKS = sorted(file.stem for file in starter_book.FOLDER.glob("*.toml"))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the empty folder from which books are read."""
    monkeypatch.setattr(starter_book, "FOLDER", tmp_path)
    book.cache_clear()
    yield tmp_path
    book.cache_clear()


def test_a_book_is_read_as_it_was_written(shelf: Path) -> None:
    (shelf / "new.toml").write_text(text_of("new", {"t.llvm": CHAPTER}, "5 schedules"))
    assert book("new") == {"t.llvm": CHAPTER}


def test_each_configuration_is_one_line() -> None:
    lines = text_of("new", {"t.llvm": CHAPTER}, "5 schedules").splitlines()
    assert [line for line in lines if "tile" in line] == [
        '    { tile = 4, order = "n m" },', "    { tile = 8, pair = [2,1] },",
    ]  # fmt: skip


def test_the_most_special_book_with_the_template_is_used(shelf: Path) -> None:
    other = msgspec.structs.replace(CHAPTER, configs=({"tile": 1},))
    (shelf / "older.toml").write_text(text_of("older", {"t": CHAPTER, "both": CHAPTER}, "nothing"))
    (shelf / "newer.toml").write_text(text_of("newer", {"both": other}, "nothing"))
    assert configs("both", ("newest", "newer", "older")) == other.configs
    assert configs("t", ("newest", "newer", "older")) == CHAPTER.configs
    assert configs("t", ("newer",)) == configs("t", ()) == ()


def space_of(template: str, target: tvm.target.Target) -> ConfigSpace | None:
    """Returns the space of a sample of the template; None without a sample."""
    samples = kernels.product(64, 128, 48), kernels.blocked(), kernels.blocked_depthwise()
    found = (template_matching.find(sample, target).template for sample in samples)
    return next((one.space() for one in found if one is not None and one.name == template), None)


@pytest.mark.parametrize("name", BOOKS)
def test_the_books_of_the_package_fit_the_templates(name: str) -> None:
    target = tvm.target.Target({"kind": "llvm", "mcpu": name, "num-cores": 1})
    assert targets.cpu_classes(target)[0] == name
    checked = 0
    for template, chapter in book(name).items():
        assert 1 <= len(chapter.configs) <= 10
        assert len(chapter.speeds) == len(chapter.configs)
        if (space := space_of(template, target)) is not None:
            for config in chapter.configs:
                assert config.keys() == {knob.name for knob in space.knobs}, "make the books again"
            checked += 1
    assert checked >= 2


def test_there_is_a_book() -> None:
    assert BOOKS


def test_only_configurations_that_the_space_admits_are_taken() -> None:
    template = template_matching.find(kernels.blocked(), kernels.CPU).template
    assert template is not None
    space = template.space()
    points = ConfigSampler(space)
    legal: list[Config] = [space.config(index) for index in range(space.size) if points.legal(index)][:2]
    unknown: Config = {"other": 1}
    assert of_book(points, [unknown, *legal], 9) == [adapted(config, space) for config in legal]
    assert len(of_book(points, legal, 1)) == 1
