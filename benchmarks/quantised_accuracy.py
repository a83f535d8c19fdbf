"""Accuracy of quantised networks beside ONNX Runtime's: ``python benchmarks/quantised_accuracy.py [NAME ...]``.

Each network is compiled with schedules by rule, and runs on seeded samples of inputs, as in ONNX Runtime. Where it was
quantised here, both are compared with the float network that it was made of: the distance is the root mean square of
the differences of an output, as a share of the output's standard deviation, and the choice is the largest value along
the last axis. Other networks are compared with ONNX Runtime itself. Results are added to
benchmarks/results/quantised_accuracy.json after each network; a network that is there is skipped without --again.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from networks import Network, networks
from raw_results import with_origin

RESULTS = Path(__file__).parent / "results" / "quantised_accuracy.json"
SAMPLES = 100
"""Number of samples of inputs."""
CHOICES_MIN = 2
"""Minimum size of the last axis of an output that holds a choice."""


def main() -> int:
    """Measures the networks named, or all quantised ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of networks.toml")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="number of samples of inputs")
    parser.add_argument("--again", action="store_true", help="measure networks again that were measured before")
    args = parser.parse_args()
    told: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for network in networks(*args.names):
        if not network.quantised or (network.name in told and not args.again):
            continue
        told[network.name] = with_origin(measured(network, args.samples))
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
        print(network.name, json.dumps(told[network.name]), file=sys.stderr, flush=True)
    print(json.dumps(told))
    return 0


def measured(network: Network, samples: int) -> dict[str, Any]:
    """Returns the figures of one network."""
    from autosched_tvm.generated_inputs import random_inputs

    model = network.fetch()
    of = networks(network.of)[0].fetch() if network.of else None
    with tempfile.TemporaryDirectory(prefix="autosched-accuracy-") as folder:
        ours = _compiled(model, network, Path(folder) / "net")
        theirs, reference = _session(model), _session(of or model)
        sums = dict.fromkeys(("ours", "theirs", "apart"), 0.0)
        same = dict.fromkeys(sums, 0)
        choices = 0
        for seed in range(samples):
            given = random_inputs(ours.info.inputs, seed)
            results = [ours.run(given), *(_run(one, given) for one in (theirs, reference))]
            for mine, other, right in zip(*results, strict=True):
                size = float(np.std(right)) or 1.0
                pairs = {"ours": (mine, right), "theirs": (other, right), "apart": (mine, other)}
                for name, (one, two) in pairs.items():
                    sums[name] += float(np.sqrt(np.mean(np.square(one.astype("f8") - two)))) / size
                if right.ndim and right.shape[-1] >= CHOICES_MIN:
                    choices += right[..., 0].size
                    for name, (one, two) in pairs.items():
                        same[name] += int((one.argmax(-1) == two.argmax(-1)).sum())
    count = samples * len(results[0])
    row: dict[str, Any] = {"samples": samples, "distance": {name: total / count for name, total in sums.items()}}
    if choices:
        row["same_choice"] = {name: number / choices for name, number in same.items()}
    if of is None:
        for part in row.values():
            if isinstance(part, dict):
                del part["ours"], part["theirs"]
    return row


def _compiled(model: Path, network: Network, path: Path) -> Any:

    from autosched_tvm.compile import candidate_build, model_sources, network_compiler, targets
    from autosched_tvm.compile.layouts import layout_variants
    from autosched_tvm.compile.layouts.layout_option import LayoutOption
    from autosched_tvm.device.loaded_module import LoadedModule

    source = model_sources.prepare(model, network.shapes, integers=True).source
    text = targets.resolve("auto", 1)
    target = candidate_build.load_target(text)
    fused = layout_variants.single(source.cleaned(target), target, LayoutOption.NCHWC).fused
    who = network_compiler.SideName(network.name, "tuned")
    network_compiler.write_build(path, fused, source, text, who)
    return LoadedModule(path)


def _session(model: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _run(session: Any, given: dict[str, Any]) -> list[Any]:
    names = {one.name for one in session.get_inputs()}
    return list(session.run(None, {name: value for name, value in given.items() if name in names}))


if __name__ == "__main__":
    sys.exit(main())
