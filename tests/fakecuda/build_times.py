"""``make gpu-builds``: processor time of builds for GPUs by this machine's own compiler, without a driver. Prints JSON.

The time is that of lowering by TVM and of the code for one architecture, for candidates of each kind.
"""

import argparse
import json
import resource
import statistics
from collections import Counter

import tvm

from autosched_tvm.compile import cuda_code, cuda_compiler, lowering, targets
from fakecuda.candidates import Candidate, sketches, templates

KINDS = ("templates", "cuda", "cuda-tensorcore")


def cpu_s() -> float:
    """Processor time of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def build_s(candidate: Candidate, arch: int) -> float:
    """Processor time of a build. Raises CudaRefused."""
    started = cpu_s()
    target = tvm.target.Target(targets.of_gpu(arch))
    library = tvm.tirx.build(candidate.module, target=target, pipeline=lowering.install())
    cuda_code.of_library(library, f"sm_{arch}")
    return cpu_s() - started


def main() -> None:
    """Prints the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="candidates of each kind")
    parser.add_argument("--arch", type=int, default=90, help="compute capability, such as 90")
    args = parser.parse_args()
    cuda_code.stay_off_gpus()
    told: dict[str, object] = {"compiler": cuda_compiler.compiler().name, "arch": args.arch}
    for kind in KINDS:
        made = templates(args.count, 0) if kind == "templates" else sketches(kind, args.count, 0, args.arch)
        times, refused = [], Counter[str]()
        for candidate in made:
            try:
                times.append(build_s(candidate, args.arch))
            except cuda_compiler.CudaRefused as why:
                refused[str(why).splitlines()[0][:200]] += 1
        told[kind] = {
            "builds": len(times), "refused": dict(refused), "median_s": round(statistics.median(times), 3),
            "most_s": round(max(times), 3),
        }  # fmt: skip
        print(json.dumps({kind: told[kind]}), flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
