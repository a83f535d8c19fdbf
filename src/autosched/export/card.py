"""The card of a packed network: what it is, from what, how it was verified, how fast it is, and its limits."""

from collections.abc import Iterator, Sequence
from typing import Any

from autosched.backend import RIVALS, Evaluation, Timing
from autosched.export import licences
from autosched.formatting import latency, size
from autosched.report import Report, verdict
from autosched.report.evaluation_summary import interval, label, starts_sentence
from autosched_runtime.side_file import cores_of

Json = dict[str, Any]
MARKS = {ord("|"): "\\|", ord("<"): "&lt;", ord("`"): "'"}
"""Replacements of Markdown's marks in texts of a model's file."""


def promise(report: Report | None) -> Json | None:
    """The latency beside that of the model, and where both were measured; None if they were not, or on a board."""
    evaluation = report.evaluation if report is not None else None
    if report is None or evaluation is None or evaluation.board:
        return None
    by_name = {timing.name: timing for timing in evaluation.timings}
    ours = by_name.get(evaluation.published)
    rival = next((timing for name, timing in by_name.items() if name in RIVALS), None)
    if ours is None:
        return None
    told = {"median_s": ours.median_s, "cpu": _cpu(report), "cores": len(evaluation.cores) or 1}
    if rival is None:
        return told
    return {**told, "rival": label(rival), "rival_s": rival.median_s, "ratio": ours.median_s / rival.median_s}


def written(variants: Sequence[tuple[Json, Report | None]], texts: Sequence[str], padding: Json | None = None) -> str:
    """The card in Markdown. `variants`: the contents of each side file, and the report of its job; `texts`: file names
    of licences and notices; `padding`: how inputs of other sizes are padded."""
    side, _ = variants[0]
    sections = {
        f"# {side['name']}": _what(side, len({_cpu_of(one) for one, _ in variants})),
        "## Interface": [*_interface([one for one, _ in variants]), *_padded(padding)],
        "## Origin": _origin(side),
    }
    cpus, shapes = {_cpu_of(one) for one, _ in variants}, {_shapes_of(one) for one, _ in variants}
    for one, report in variants:
        evaluation = report.evaluation if report is not None else None
        where = (f" on {_cpu_of(one)}" if len(cpus) > 1 else "") + (f" of {_shapes_of(one)}" if len(shapes) > 1 else "")
        sections |= {
            f"## Verification{where}": _verification(one, evaluation),
            f"## Latency{where}": _latencies(report, evaluation),
            f"## Limits{where}": _limits(one, promise(report), evaluation, padded=padding is not None),
        }
    sections["## Licences"] = _licences(texts)
    return "\n\n".join(f"{title}\n\n" + "\n".join(lines) for title, lines in sections.items()) + "\n"


def _cpu_of(side: Json) -> str:
    return str(side["target"].get("mcpu") or "any CPU")


def _shapes_of(side: Json) -> str:
    return ", ".join("x".join(map(str, tensor["shape"])) or "scalar" for tensor in side["inputs"])


def _what(side: Json, variants: int) -> Iterator[str]:
    kinds = "one kind" if variants == 1 else f"{variants} kinds"
    yield f"{_file(side)}, compiled for {kinds} of CPU by autosched. It runs with the package autosched-runtime:"
    yield ""
    yield "    import autosched_runtime as ort"
    yield f'    session = ort.InferenceSession("{side["name"]}.asn")'
    yield "    outputs = session.run(None, {...})"


def _interface(sides: Sequence[Json]) -> Iterator[str]:
    yield "| | name | type | shape |"
    yield "|---|---|---|---|"
    for kind in ("inputs", "outputs"):
        for number, tensor in enumerate(sides[0][kind]):
            shapes = list(
                dict.fromkeys(" x ".join(map(str, side[kind][number]["shape"])) or "scalar" for side in sides)
            )
            yield f"| {kind[:-1]} | {_cell(tensor['name'])} | {tensor['dtype']} | {' or '.join(shapes)} |"


def _padded(padding: Json | None) -> Iterator[str]:
    if padding is not None:
        names = " and ".join(f"axis {axis} of {_cell(name)}" for name, axis in padding["axes"].items())
        yield ""
        ones = f" ({', '.join(map(_cell, padding['ones']))} with ones)" if padding.get("ones") else ""
        yield f"Sizes between those along {names}, from {padding['least']} on, are padded with zeros{ones}, and the"
        yield "outputs are cut back. Outputs of padded calls were compared with those of the model in ONNX Runtime."


def _origin(side: Json) -> Iterator[str]:
    yield f"- model: {_file(side)}, SHA-256 {side.get('model') or 'unknown'}"
    about = side.get("about") or {}
    if about.get("producer_name"):
        yield f"- made by: {_cell(about['producer_name'])}"
    for text in filter(None, (about.get("description"), about.get("graph_description"))):
        yield f"- its author says: {_cell(text)}"
    yield "- compiled with: " + ", ".join(f"{name} {number}" for name, number in sorted(side["versions"].items()))
    kernels = list((side.get("kernels") or {}).values())
    if kernels:
        by_source = ", ".join(f"{kernels.count(source)} {source}" for source in sorted(set(kernels)))
        yield f"- schedules of its {len(kernels)} kernels: {by_source}"


def _verification(side: Json, evaluation: Evaluation | None) -> Iterator[str]:
    verified = side.get("verified")
    if not verified:
        yield "NOT VERIFIED: no other engine could compute the model's outputs."
    elif evaluation is None:
        yield f"Its outputs were compared with those of {verified}, and are equal within the resolution of the numbers."
    else:
        yield f"{verdict(evaluation).outputs[:1].upper()}{verdict(evaluation).outputs[1:]}."
    if side.get("integers"):
        yield "It multiplies 8-bit integers, as the quantised model does."


def _latencies(report: Report | None, evaluation: Evaluation | None) -> Iterator[str]:
    if report is None or evaluation is None or not evaluation.timings:
        yield "Not measured."
        return
    where = evaluation.board or f"{_cores(len(evaluation.cores) or 1)} of {_cpu(report)}"
    yield f"One inference, measured in turns on {where} ({report.made_at[:10]}):"
    yield ""
    yield "| | median | 95 % of the median |"
    yield "|---|---|---|"
    for timing in evaluation.timings:
        yield f"| {_who(timing, evaluation)} | {latency(timing.median_s)} | {interval(timing)} |"
    if told := starts_sentence(evaluation):
        yield ""
        yield told


def _cpu(report: Report) -> str:
    """The CPU that was measured."""
    known = report.job.identities
    return known[-1].identity.device if known and known[-1].identity.device else report.machine.cpu


def _who(timing: Timing, evaluation: Evaluation) -> str:
    if timing.name == evaluation.published:
        return "this network"
    name = evaluation.reference if timing.name == "onnxruntime" else label(timing)
    return f"{name}, the model {evaluation.form}" if timing.name in RIVALS and evaluation.form else name


def _limits(side: Json, promised: Json | None, evaluation: Evaluation | None, *, padded: bool) -> Iterator[str]:
    features = side.get("features") or ()
    cpu = side["target"].get("mcpu") or "any"
    yield f"- It runs on CPUs like {cpu}" + (
        f", which grant {len(features)} features: {', '.join(features)}." if features else "."
    )
    cores = _cores(cores_of(side["target"]))
    yield f"- It was tuned for {cores}; other numbers of threads work, and were not measured."
    if not padded:
        yield "- It takes inputs of these shapes and types alone."
    if side.get("weights"):
        yield f"- Its weights take {size(sum(part['bytes'] for part in side['weights']['parts']))} of memory."
    if promised is None:
        yield "- No latency is promised."
    for note in evaluation.notes if evaluation is not None else ():
        yield f"- {_cell(note)}"


def _licences(texts: Sequence[str]) -> Iterator[str]:
    yield (
        "Code that TVM has made is under the Apache License 2.0: see "
        + ", ".join(text for text in texts if text != licences.MODEL)
        + "."
    )
    if licences.MODEL in texts:
        yield f"The model's own licence: {licences.MODEL}."
    else:
        yield "The licence of the model applies to the network too; it was not given (--licence)."


def _file(side: Json) -> str:
    return _cell(side.get("file") or f"{side['name']}.onnx")


def _cores(count: int) -> str:
    return "one core" if count == 1 else f"{count} cores"


def _cell(text: object) -> str:
    """A text from a model's file in one line, without what Markdown would take for marks of its own."""
    return " ".join(str(text).split()).translate(MARKS)
