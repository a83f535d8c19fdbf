"""The page's own files: vendored files are unchanged, nothing is loaded from elsewhere, and all text is legible."""

import hashlib
import re
from pathlib import Path

import pytest

from autosched.daemon.observe.usage import Cause

STATIC = Path(__file__).parents[4] / "src/autosched/daemon/web/static"
SHEET = (STATIC / "style.css").read_text()
TEXTS = ("text", "dim", "link", "good", "warn", "bad")
GROUNDS = ("panel", "ground", "hover")
STAGES = ("import", "baseline", "select", "build", "profile", "update", "compile", "evaluate", "other")


def themes() -> list[dict[str, str]]:
    """Returns the themes: light, dark as chosen, and dark as the system prefers."""
    blocks = re.findall(r"\{\s*color-scheme: (?:light|dark);([^}]*)\}", SHEET)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_dark_is_dark_by_system_and_by_choice() -> None:
    light, chosen, system = themes()
    assert chosen == system
    assert light.keys() == chosen.keys()


@pytest.mark.parametrize("theme", [0, 1])
def test_text_has_the_contrast_that_wcag_aa_asks_for(theme: int) -> None:
    colours = themes()[theme]
    pairs = [(text, ground) for text in TEXTS for ground in GROUNDS]
    weak = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}
    bars = {stage: contrast(colours[stage], colours["panel"]) for stage in STAGES}  # they contain numbers of jobs
    assert {stage: ratio for stage, ratio in bars.items() if ratio < 4.5} == {}


def test_each_cause_has_a_tint() -> None:
    causes = {cause.value.replace(" ", "-") for cause in Cause}
    assert all(causes <= theme.keys() for theme in themes())


def test_what_others_made_is_unchanged() -> None:
    sums = re.findall(r"^    ([0-9a-f]{64})  (\S+)$", (STATIC / "vendor/VENDOR.md").read_text(), re.MULTILINE)
    files = {path.name for path in (STATIC / "vendor").iterdir()} - {"VENDOR.md"}
    assert files == {name for _, name in sums}
    assert all(hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == sum for sum, name in sums)


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.*")), ids=lambda path: path.name)
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"^\s*//.*$|\s// .*$", "", text, flags=re.MULTILINE)
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=", text)
    assert "innerHTML" not in text
