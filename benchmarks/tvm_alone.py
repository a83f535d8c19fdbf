"""Compiles the best schedules of a MetaSchedule database with TVM only, as a program without autosched would.

``python benchmarks/tvm_alone.py DATABASE OUT`` writes a library for each workload to the folder OUT, and prints a JSON
object: mean latency in seconds, as in the database, by structural hash.
"""

import base64
import json
import sys
from pathlib import Path

import tvm
from tvm.s_tir import meta_schedule as ms


def main(database: Path, out: Path) -> None:
    """Compiles the best schedule of each workload."""
    opened = ms.database.JSONDatabase(work_dir=str(database))
    told = {}
    for line in (database / "database_workload.json").read_text().splitlines():
        name, packed = json.loads(line)
        module = tvm.ir.load_json(base64.b64decode(packed)[8:].decode())
        best = opened.query_tuning_record(module, tvm.target.Target("llvm"), "main")
        schedule = opened.query_schedule(module, best.target, "main")
        library = tvm.compile(schedule.mod, target=best.target)
        library.export_library(str(out / f"{int(name):016x}.so"))
        told[f"{int(name):016x}"] = sum(float(one) for one in best.run_secs) / len(best.run_secs)
    print(json.dumps(told))
    assert not [name for name in sys.modules if name.startswith("autosched")]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
