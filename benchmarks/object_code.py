"""Object code of the kernels of a job's records, for checks that a change of the code leaves it as it was.

``python benchmarks/object_code.py MODEL.onnx RESULT/records.jsonl > before.txt`` builds each candidate of the records
and the kernel that the rules make for each task. It prints the digest of the object code of each. Compare the output
of two versions with ``diff``. Give the layout and the target with which the job was tuned.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import tvm

from autosched.api.result_folder import SavedRecord
from autosched.model import Record
from autosched_tvm.compile import candidate_build, lowering, network_import, object_digest, rules

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
"""Any machine can compile for it, and nothing is run."""


def main() -> int:
    """Import the model, build the candidates, print the digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--layout", default="keep")
    parser.add_argument("--winograd", action="store_true")
    parser.add_argument("--target", default=json.dumps(TARGET), help="as JSON (default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as name:
        folder = Path(name)
        prepared = str(folder / "prepared.onnx")
        ways = (args.layout, args.winograd)
        found = network_import.take_in(str(args.model), {}, args.target, prepared, str(folder), *ways)
        workloads = {info.task: candidate_build.load_task(str(folder / f"{info.task}.json")) for info in found.tasks}
        target = candidate_build.load_target(args.target)
        for task, workload in workloads.items():
            module = tvm.IRModule({"main": rules.by_rule(workload["main"], target)})
            print(f"rules task {task}: {digest(module, target, folder)}", flush=True)
        for path in args.records:
            for record in read(path):
                module = candidate_build.scheduled(workloads[record.task], record.candidate)
                print(f"{path.name} {record.task}/{record.trial}: {digest(module, target, folder)}", flush=True)
    return 0


def read(path: Path) -> list[Record]:
    """The records with a schedule that could be built."""

    records = [msgspec.json.decode(line, type=SavedRecord) for line in path.read_bytes().splitlines()]
    return [record for record in records if record.candidate and record.failure is None]


def digest(module: Any, target: Any, folder: Path) -> str:
    """Digest of a module's object code."""
    output = folder / "kernel.o"
    tvm.tirx.build(module, target=target, pipeline=lowering.install()).write_to_file(str(output))
    return object_digest.digest_of(output)


if __name__ == "__main__":
    sys.exit(main())
