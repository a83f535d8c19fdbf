"""A fingerprint changes with the behaviour of code only."""

from pathlib import Path

import pytest

from autosched_tvm.source_fingerprint import fingerprint, fingerprint_of, text_digest

SHORT = "SIZE = 3\ndef tile(loops): return [loops, SIZE]"


def test_comments_docstrings_imports_and_layout_do_not_change_the_fingerprint() -> None:
    one = fingerprint(["""
import math
SIZE = 3
'''Of it.'''
def tile(loops):
    '''Splits.'''
    return [loops,  # all
            SIZE]
"""])  # fmt: skip
    assert one == fingerprint([SHORT])


@pytest.mark.parametrize("other", [[SHORT.replace("3", "4")], [SHORT.replace("tile", "split")], [SHORT, SHORT], []])
def test_any_other_change_changes_the_fingerprint(other: list[str]) -> None:
    assert fingerprint([SHORT]) != fingerprint(other)


def test_a_package_has_the_fingerprint_of_all_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, depth in (("printed_one", 1), ("printed_two", 2)):
        folder = tmp_path / name / "below"
        folder.mkdir(parents=True)
        for place in (folder, folder.parent):
            (place / "__init__.py").touch()
        (folder / "deep.py").write_text(f"raise SystemExit({depth})")  # it is read, and never run
    assert fingerprint_of("printed_one") != fingerprint_of("printed_two")


def test_a_module_that_does_not_exist_is_reported() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        fingerprint_of("no_such_module")


def test_a_comment_changes_the_text_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("noted_one", SHORT), ("noted_two", f"{SHORT}  # all"), ("noted_three", SHORT)):
        (tmp_path / f"{name}.py").write_text(text)
    assert fingerprint_of("noted_one") == fingerprint_of("noted_two")
    assert text_digest("noted_one") == text_digest("noted_three") != text_digest("noted_two")
