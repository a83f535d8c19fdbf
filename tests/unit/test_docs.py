"""The documents are true: paths exist, commands exist, figures are those that were measured."""

import inspect
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import claims
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import autosched
from autosched.cli.command_table import COMMANDS
from autosched.errors import AutoschedError

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/limits.md", "docs/users.md", "docs/operators.md",
    "docs/command-line.md", "docs/policies.md", "docs/index.md"
]  # fmt: skip


def quoted(page: str) -> list[str]:
    """Returns texts in backticks or in an indented block."""
    text = (ROOT / page).read_text()
    return [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^    (.+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    said = [word for text in quoted(page) for word in re.findall(r"[\w./-]+", text)]
    paths = [
        word
        for word in said
        if word.startswith(("src/", "plugins/", "runtime/", "tests/", "benchmarks/", "etc/", "systemd/"))
    ]
    assert paths or page in ("docs/index.md", "docs/limits.md")
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def headings(path: Path) -> set[str]:
    """Returns the anchors of a page, as sites make them from its headings."""
    lines = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", [*PAGES, "docs/plugins.md", "docs/protocol.md", "docs/faults.md"])
def test_links_lead_somewhere(page: str) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text()):
        place, _, anchor = link.partition("#")
        path = (ROOT / page).parent / place if place else ROOT / page
        if "://" not in link and (not path.exists() or (anchor and anchor not in headings(path))):
            lost.append(link)
    assert not lost


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    named = {match for text in quoted(page) for match in re.findall(r"^(?:\S+/)?autosched ([a-z][a-z-]*)", text)}
    assert named or page != "README.md"
    assert named <= COMMANDS.keys()


def test_the_readme_names_every_make_target_it_promises() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= named <= targets


def test_the_architecture_is_short_and_its_tests_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 300
    assert not [line for line in text.splitlines() if len(line) > 100]
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert not [name for name in named if f"def {name}(" not in tests]


@pytest.mark.parametrize("page", sorted((ROOT / "docs/decisions").glob("*.md")), ids=lambda page: page.stem)
def test_decisions_have_a_number_and_say_what_was_rejected(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem[:3]}: ")
    assert re.search(r"[Rr]ejected|instead|[Nn]ot taken|Tried|in vain", text)


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert not [line for line in lines if len(line) > 100]


def test_the_picture_of_the_readme_is_small_and_loads_nothing() -> None:
    picture = ROOT / "docs/demo.svg"
    assert picture.stat().st_size <= 300_000
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"https?://[^\"]+", picture.read_text()) == ["http://www.w3.org/2000/svg"]
    assert "/root" not in picture.read_text() and "/home" not in picture.read_text()


def test_names_of_the_python_example_exist() -> None:
    (code,) = re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    compile(code, "README.md", "exec")
    used = set(re.findall(r"autosched\.(\w+)\(", code))
    assert used
    assert used <= set(autosched.__all__)


def test_every_error_stands_in_the_tree_of_its_docstring() -> None:
    from autosched import errors

    kinds = [
        name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AutoschedError)
    ]  # fmt: skip
    assert errors.__doc__ is not None
    assert not [name for name in kinds if name not in errors.__doc__]


def test_the_page_of_numbers_is_what_was_measured() -> None:
    """To write it anew: python benchmarks/run.py --page-only."""
    assert (ROOT / "benchmarks/RESULTS.md").read_text() == claims.page()


def test_the_version_is_the_same_everywhere() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{autosched.__version__}"' in pyproject
    released = ".dev" not in autosched.__version__
    assert (f"## {autosched.__version__} (" in (ROOT / "CHANGELOG.md").read_text()) is released


def test_each_change_says_of_which_kind_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    kinds = "|".join(one["directory"] for one in project["tool"]["towncrier"]["type"])
    files = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [path.name for path in files if not re.fullmatch(rf"\+[a-z0-9-]+\.({kinds})\.md", path.name)] == []
    assert [path.name for path in files if len(path.read_text()) > 600] == [], "a few lines are enough"


PACKAGES = sorted(
    path.parent
    for folder in ("src/autosched", "runtime")
    for path in (ROOT / folder).rglob("__init__.py")
    if "Files: " in path.read_text()
)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_packages_name_their_files(package: Path) -> None:
    text = (package / "__init__.py").read_text().partition("Files: ")[2].partition("\n\n")[0].partition('"""')[0]
    named = re.findall(r"\b(\w+\.py|\w+/)", text)
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and list(path.rglob("__init__.py"))}
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert sorted(named) == sorted(folders | files)


READ_TWICE = re.compile(
    "|".join(
        ['"""(Of|So|Who|What) ', "no" + "body", "some" + "body", "who" + "ever", "so " + "(many|much|long|often) "]
    ),
    re.IGNORECASE,
)
"""Words and beginnings of sentences that a reader has to read twice; see CONTRIBUTING.md."""


@pytest.mark.parametrize("folder", ["src", "plugins", "runtime", "tests", "benchmarks", "docs", "etc", "."])
def test_texts_name_what_they_speak_of(folder: str) -> None:
    kinds = {".py", ".md", ".txt", ".toml", ".html", ".js", ".css"}
    files = (ROOT / folder).glob("*") if folder == "." else (ROOT / folder).rglob("*")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path.suffix in kinds and path.is_file()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if READ_TWICE.search(line)
    ]
    assert not found


def test_every_pip_can_read_the_constraints() -> None:
    """Newer versions of pip refuse versions that older ones accept."""
    lines = (ROOT / "etc/constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert len(pinned) > 50
    for line in pinned:
        for one in Requirement(line).specifier:
            assert str(Version(one.version))
