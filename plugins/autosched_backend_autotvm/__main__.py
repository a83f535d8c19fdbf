"""``python -m autosched_backend_autotvm MODEL.onnx``: prints the knobs of each task, as a job would search them."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autosched.errors import AutoschedError
from autosched_backend_autotvm import options
from autosched_backend_autotvm.options import Options
from autosched_tvm.api import LayoutOption, Unsupported, Ways, quiet, read_shapes


def main(argv: Sequence[str] | None = None) -> int:
    """Prints task by task; returns 0 when the model can be tuned."""
    parser = argparse.ArgumentParser(prog="python -m autosched_backend_autotvm", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,224,224")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--layout", default=Options().layout.value, choices=[one.value for one in LayoutOption])
    parser.add_argument("--knobs", default="", help='the option of that name: {"tile_w": [7, 14]}')
    parser.add_argument("--enlarge", default="", help="likewise")
    args = parser.parse_args(argv)
    try:
        given = options.read({"layout": args.layout, "knobs": args.knobs, "enlarge": args.enlarge})
        with quiet():
            said = list(spaces(args.model, read_shapes(args.shape), args.target, given))
    except AutoschedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("\n\n".join(said) + "\n")
    return 0


def spaces(model: Path, shapes: dict[str, tuple[int, ...]], target: str, given: Options) -> Iterator[str]:
    """Yields a paragraph for each task, the heaviest first. Raises ModelRejected or RequestError."""
    from autosched_backend_autotvm import template_matching
    from autosched_backend_autotvm.search_method import AutoTvmMethod
    from autosched_tvm.api import candidate_build, network_import, targets

    aim = targets.resolve(target, 1)
    method = AutoTvmMethod(given)
    with tempfile.TemporaryDirectory(prefix="autosched-spaces-") as folder:
        found = network_import.take_in(
            str(model), shapes, aim, f"{folder}/prepared.onnx", folder, Ways(given.layout, given.winograd)
        )
        for task in found.tasks:
            workload = candidate_build.load_task(f"{folder}/{task.task}.json")
            where = template_matching.find(workload, candidate_build.load_target(aim))
            try:
                space = method.space(where.template.space()).describe() if where.template else ""
                yield f"{task.shape}\n{space or f'no template: {where.why_not}'}"
            except Unsupported as error:
                yield f"{task.shape}\n{error}"


if __name__ == "__main__":
    sys.exit(main())
