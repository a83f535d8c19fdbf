"""Small files are written atomically, and leave nothing behind."""

import os
import stat
from pathlib import Path

import pytest

from autosched.process import whole_file


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_the_former_content_is_replaced(private: bool, mode: int, tmp_path: Path) -> None:
    path, umask = tmp_path / "state.json", os.umask(0o022)
    try:
        for content in (b"first", b"2"):
            assert whole_file.write(path, content, private=private) == path
            assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(umask)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = whole_file.write(tmp_path / "state.json", b"first")

    def full(_: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(whole_file.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        whole_file.write(path, b"second", durable=True)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"first"]
