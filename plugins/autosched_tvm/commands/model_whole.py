"""``python -m autosched_tvm.commands.model_whole MODEL OUT``: a model with its weights in one file; prints JSON."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosched.errors import AutoschedError, RequestError

BYTES_MAX = 2**31 - 2**20
"""Maximum size of an ONNX file, less some space for what is not weights."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file and print one JSON object; returns 0 if the model is whole."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.model_whole", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args(argv)
    try:
        answer = {"ok": True, "files": join(args.model, args.out)}
    except AutoschedError as error:
        answer = {"ok": False, "code": error.code, "error": str(error)}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def join(path: Path, out: Path) -> list[str]:
    """Writes the model with its weights; returns the names of the files in which they lay. Without any, writes
    nothing. Raises RequestError."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import external_data_helper as helper

    from autosched_tvm.compile.frontend.preparation import external_tensors
    from autosched_tvm.worker_failures import gist

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError):
        return []  # the import says what is wrong
    tensors = list(external_tensors(model))
    sizes = [helper.ExternalDataInfo(tensor) for tensor in tensors]
    names = list(dict.fromkeys(one.location for one in sizes))
    if not names:
        return []
    total = path.stat().st_size + sum(_size(path, one) for one in sizes)
    if total > BYTES_MAX:
        raise RequestError(
            f"{path.name} has {total / 1e9:.1f} GB with its weights in {', '.join(names[:3])}. A job takes one file,"
            " and ONNX allows 2 GB in one: export the model with 16-bit weights, or tune a part of it, which"
            " onnx.utils.extract_model(FILE, PART, INPUTS, OUTPUTS) writes"
        )
    for tensor in tensors:
        try:
            helper.load_external_data_for_tensor(tensor, str(path.parent))
        except Exception as error:  # of onnx's C++ code, and of the file system
            raise RequestError(
                f"the weights {tensor.name!r} of {path.name} cannot be read: {gist(error)[:300]}. They must lie beside"
                " the model, in the files with which it was exported: copy these too"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    out.write_bytes(model.SerializeToString())
    return names


def _size(path: Path, info: Any) -> int:
    """Size of some weights in bytes; without a stated one, that of the file."""
    if info.length:
        return int(info.length)
    file = path.parent / info.location
    return file.stat().st_size if file.is_file() else 0


if __name__ == "__main__":
    sys.exit(main())
