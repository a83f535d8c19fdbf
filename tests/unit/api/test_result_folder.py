import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from autosched.api import result_folder
from autosched.api.on_demand import connected
from autosched.errors import JobCancelled, JobFailed, RequestError
from autosched.model import Identity, IdentityFrom, JobFailure, Record
from autosched.process import whole_file
from autosched.protocol import (
    Artifact,
    ArtifactList,
    Chunk,
    GetBlob,
    GetJob,
    GetRecords,
    JobView,
    ListArtifacts,
    ListDevices,
    ListSpans,
    Method,
    RecordPage,
    SpanList,
    UnitList,
    UnitView,
)
from autosched.records import identity
from fake import fake_daemon
from samples import evaluation, job_view, records, spans

MODULE = b"\x7fELF"
FILES = {"net.so": MODULE, "net.json": b"{}", "evaluation.json": msgspec.json.encode(evaluation())}


HEALTHY = UnitView("cpu0", ("device:cpu",), (1,), "free", health="steady")


class Finished:
    """A daemon with one finished job; stores the jobs whose records were requested."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[int] = []

    async def answer(self, method: Method) -> Struct:
        import hashlib

        by_hash = {hashlib.sha256(data).hexdigest(): (name, data) for name, data in self.files.items()}
        match method:
            case ListArtifacts():
                return ArtifactList(tuple(Artifact(name, sha, len(data)) for sha, (name, data) in by_hash.items()))
            case GetBlob(sha256=sha):
                data = by_hash[sha][1]
                return Chunk(data, len(data))
            case GetRecords(job=job, after=after):
                self.asked.append(job)
                return RecordPage(tuple(records()[after : after + 4]), after + 4 < len(records()))
            case GetJob(job=3):
                return replace(job_view(), job=3, identities=(IdentityFrom(0, Identity("of job 3")),))
            case ListSpans(after=after):
                left = [span for span in spans() if span.step > after]
                return SpanList(tuple(left[:3]), 1100.0, len(left) > 3)
            case ListDevices():
                return UnitList((UnitView("host/0", ("host",), (0,), "free"), HEALTHY))
        raise AssertionError(method)


def done(**changes: Any) -> JobView:
    return replace(job_view(), state="done", ended_at=1100.0, **changes)


def collect(tmp_path: Path, daemon: Finished, view: JobView, folder: Path) -> result_folder.Result:
    async def run(address: str) -> result_folder.Result:
        async with connected(address) as connection:
            return await result_folder.collect(connection, view, folder)

    with fake_daemon(tmp_path, daemon.answer) as address:
        return asyncio.run(run(address))


def test_a_folder_with_module_records_and_report(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = collect(tmp_path, Finished(FILES), done(), folder)
    assert {path.name for path in folder.iterdir()} == {
        "net.so",
        "net.json",
        "records.jsonl",
        "report.json",
        "report.html",
    }
    assert result.module == folder / "net.so"
    assert result.module.read_bytes() == MODULE
    lines = (folder / "records.jsonl").read_bytes().splitlines()
    saved = [msgspec.json.decode(line, type=result_folder.SavedRecord) for line in lines]
    assert [Record(**{name: getattr(one, name) for name in Record.__struct_fields__}) for one in saved] == records()
    assert {one.identity for one in saved} == {""}
    told = json.loads((folder / "report.json").read_text())
    assert (told["schema"], told["job"]["name"]) == (1, "squeezenet")
    assert told["evaluation"]["timings"][1]["median_s"] == 0.016
    assert [span["step"] for span in told["spans"]] == [2, 3, 4, 5, 6, 7]
    assert "squeezenet" in (folder / "report.html").read_text()


def test_the_job_whose_results_are_replaced_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert [collect(tmp_path, Finished(FILES), done(), folder).replaced for _ in range(2)] == [None, None]
    report = folder / "report.json"
    report.write_text(report.read_text().replace('"job": 7', '"job": 5'))
    assert collect(tmp_path, Finished(FILES), done(), folder).replaced == 5
    report.write_text("no report")
    assert collect(tmp_path, Finished(FILES), done(), folder).replaced is None


def test_the_module_alone_is_saved_under_a_given_name(tmp_path: Path) -> None:
    wanted = tmp_path / "out" / "mine.so"
    result = collect(tmp_path, Finished(FILES), done(), wanted)
    assert sorted(wanted.parent.iterdir()) == [wanted.with_suffix(".json"), wanted]
    assert result.module == wanted
    assert wanted.read_bytes() == MODULE
    assert wanted.with_suffix(".json").read_bytes() == b"{}"


def test_a_backend_without_a_module_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"makes no module.*autosched attach 7 --output DIR"):
        collect(tmp_path, Finished({"net.json": b"{}"}), done(), tmp_path / "mine.so")
    (tmp_path / "folder.so").mkdir()
    with pytest.raises(RequestError, match="is a folder"):
        result_folder.prepare(tmp_path / "folder.so")


def test_a_compile_reports_the_trials_that_it_used(tmp_path: Path) -> None:
    daemon = Finished(FILES)
    spec = job_view().spec
    assert spec is not None
    collect(tmp_path, daemon, done(trials=0, spec=replace(spec, records_from=3)), tmp_path / "out")
    assert set(daemon.asked) == {3}
    lines = (tmp_path / "out" / "records.jsonl").read_bytes().splitlines()
    assert {json.loads(line)["identity"] for line in lines} == {identity.digest(Identity("of job 3"))}
    (told,) = json.loads((tmp_path / "out" / "report.json").read_text())["job"]["identities"]
    assert told["identity"]["target"] == "of job 3", "the report spells out what the digest stands for"


def test_each_record_has_its_identity(tmp_path: Path) -> None:
    """A client after an upgrade measured the last ones."""
    first, second = Identity(compiler="tvm 0.26"), Identity(compiler="tvm 0.27")
    view = done(identities=(IdentityFrom(1, first), IdentityFrom(4, second)))
    collect(tmp_path, Finished(FILES), view, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_bytes().splitlines()]
    digests = ["", *[identity.digest(first)] * 3, *[identity.digest(second)] * 2]
    assert [line["identity"] for line in lines] == digests
    told = json.loads((tmp_path / "out" / "report.json").read_text())["job"]["identities"]
    assert [one["identity"]["compiler"] for one in told] == ["tvm 0.26", "tvm 0.27"]


def test_a_full_disk_is_reported_and_leaves_no_partial_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_file.os, "fsync", full)
    folder = tmp_path / "out"
    with pytest.raises(RequestError, match=r"the disk is full.*the daemon keeps.*autosched attach 7 --output DIR"):
        collect(tmp_path, Finished(FILES), done(), folder)
    assert {path.name for path in folder.iterdir()} == {"net.so", "net.json"}


def test_a_malformed_evaluation_is_ignored(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not an evaluation"):
        collect(tmp_path, Finished({"evaluation.json": b"{}"}), done(), tmp_path / "out")


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/below"])
def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"cannot be written.*--output DIR") as error:
        result_folder.prepare(tmp_path / where)
    assert error.value.exit_code == 2


def test_preparing_leaves_nothing_behind(tmp_path: Path) -> None:
    assert result_folder.prepare(tmp_path / "a" / "b").is_absolute()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_the_end_of_a_job_is_in_the_folder() -> None:
    result_folder.check_ended(done())
    failed = replace(job_view(), state="failed", failure=JobFailure("model_rejected", "LSTM is not supported"))
    with pytest.raises(JobFailed, match="LSTM is not supported") as error:
        result_folder.check_ended(failed)
    assert error.value.exit_code == 6
    with pytest.raises(JobCancelled, match="autosched compile 7") as cancelled:
        result_folder.check_ended(replace(job_view(), state="cancelled"))
    assert cancelled.value.exit_code == 7


def test_a_rejected_build_is_not_used_as_the_module() -> None:
    files = tuple(Path(name) for name in ("net.rejected.so", "net.so"))
    assert result_folder.Result(None, Path(), files).module == Path("net.so")  # type: ignore[arg-type]  # no report is needed
    assert result_folder.Result(None, Path(), files[:1]).module is None  # type: ignore[arg-type]
