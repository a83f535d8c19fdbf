"""The interface of onnxruntime's sessions, so that a program that was written for it runs a compiled network.

The program changes its import: `import autosched_runtime as ort`. The names, arguments and results are those of
onnxruntime 1.31, onnxruntime/python/onnxruntime_inference_collection.py.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from autosched_runtime import thread_pool
from autosched_runtime.errors import FileMissing, InvalidInput
from autosched_runtime.inputs import Array, onnx_type
from autosched_runtime.network_of_shapes import VARIES, loaded
from autosched_runtime.networks_by_model import Model, network_of
from autosched_runtime.ort_value import IOBinding, OrtValue
from autosched_runtime.session_options import RunOptions, SessionOptions, lost
from autosched_runtime.side_file import Tensor

if TYPE_CHECKING:
    from concurrent.futures import Future

PROVIDER = "CPUExecutionProvider"
Feed = Mapping[str, Any]


class NodeArg(NamedTuple):
    """An input or output of a session."""

    name: str
    shape: list[int | str]
    """A size that varies has a name."""
    type: str
    """Such as "tensor(float)"."""


class ModelMetadata(NamedTuple):
    """Facts that the model's file states about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """A session with a compiled network. May be used from any number of threads."""

    def __new__(
        cls, path_or_bytes: Model, sess_options: SessionOptions | None = None, *words: Any, **named: Any
    ) -> Any:
        """A session with the network of a model; ONNX Runtime's own session for a model without a compiled network."""
        try:
            network = network_of(path_or_bytes)
        except FileMissing as missing:
            return _of_onnxruntime(missing, path_or_bytes, sess_options, *words, **named)
        made = super().__new__(cls)
        made._network_path = network
        return made

    _network_path: str | os.PathLike[str]

    def __init__(
        self,
        path_or_bytes: Model,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **more: Any,
    ) -> None:
        """`path_or_bytes`: a compiled network (NAME.so, or its folder), or the model that it was compiled from:
        `networks_by_model` says where the network is looked for.

        Raises NetworkError, and FileMissing for a model without a compiled network where onnxruntime is missing.
        """
        del path_or_bytes, provider_options
        self._options = sess_options or SessionOptions()
        for name in more:
            lost(f"InferenceSession({name}=...)")
        others = [one if isinstance(one, str) else one[0] for one in providers or ()]
        if others and PROVIDER not in others:
            lost(f"providers={others}")
        wanted = self._options.intra_op_num_threads
        self._network = loaded(self._network_path, min(wanted, thread_pool.usable()) if wanted else None)
        description = self._network.description
        self._inputs = [_argument(tensor) for tensor in description.inputs]
        self._outputs = [_argument(tensor) for tensor in description.outputs]
        self._names = [argument.name for argument in self._outputs]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def run(
        self, output_names: Sequence[str] | None, input_feed: Feed, run_options: RunOptions | None = None
    ) -> list[Array]:
        """The named outputs in their order, or all. Raises InvalidInput for inputs that do not fit."""
        if not output_names or output_names == self._names:
            return self._network.run(input_feed)
        chosen = self._chosen(output_names)
        results = self._network.run(input_feed)
        return [results[number] for number in chosen]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feed,
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread, which then calls `callback(results, user_data, error)`; without results, `error` says
        why."""
        chosen = self._chosen(output_names or self._names)

        def done(future: "Future[list[Array]]") -> None:
            if (error := future.exception()) is not None:
                callback([], user_data, str(error))
                return
            results = future.result()
            callback([results[number] for number in chosen], user_data, "")

        self._network.submit(input_feed).add_done_callback(done)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Feed, run_options: RunOptions | None = None
    ) -> list[OrtValue]:
        """As `run`, with OrtValues."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values)]

    def io_binding(self) -> IOBinding:
        """Names of inputs and outputs bound to arrays, for `run_with_iobinding`."""
        return IOBinding([one.name for one in self._inputs], self._names)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with the bound inputs, and leave the outputs in the binding."""
        iobinding.take(self._network.run(iobinding.inputs()))

    def get_inputs(self) -> list[NodeArg]:
        """Names, shapes and types of the inputs."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """Names, shapes and types of the outputs."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are compiled in."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Facts that the model's file states about itself."""
        about = self._network.description.about
        return ModelMetadata(
            about.get("producer_name", ""), about.get("graph_name", ""), about.get("domain", ""),
            about.get("description", ""), about.get("graph_description", ""), about.get("version", 0),
            dict(about.get("metadata", {})),
        )  # fmt: skip

    def get_session_options(self) -> SessionOptions:
        """The options of this session."""
        return self._options

    def get_providers(self) -> list[str]:
        """The CPU, which runs the network."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The CPU has none."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any], provider_options: Sequence[Any] | None = None) -> None:
        """Accepts the CPU, and says so of others."""
        others = [one if isinstance(one, str) else one[0] for one in providers]
        if PROVIDER not in others:
            lost(f"set_providers({others})")

    def disable_fallback(self) -> None:
        """There is no other provider to fall back to."""

    enable_fallback = disable_fallback

    def _chosen(self, names: Sequence[str]) -> list[int]:
        """Positions of named outputs. Raises InvalidInput."""
        if unknown := [name for name in names if name not in self._numbers]:
            raise InvalidInput(f"there is no output {unknown[0]!r}; the outputs are: {', '.join(self._numbers)}")
        return [self._numbers[name] for name in names]


def get_available_providers() -> list[str]:
    """The CPU, which alone runs networks here."""
    return [PROVIDER]


get_all_providers = get_available_providers


def get_device() -> str:
    """The kind of the device."""
    return "CPU"


def _argument(tensor: Tensor) -> NodeArg:
    sizes = [f"{tensor.name}_{axis}" if size == VARIES else size for axis, size in enumerate(tensor.shape)]
    return NodeArg(tensor.name, sizes, onnx_type(tensor.dtype))


def _of_onnxruntime(
    missing: FileMissing, model: Model, options: SessionOptions | None, *words: Any, **named: Any
) -> Any:
    """ONNX Runtime's own session of a model. Raises FileMissing where it is not installed."""
    import logging

    try:
        import onnxruntime

        if onnxruntime.__name__ == __package__:  # the program has put the runtime in its place
            raise missing
    except ImportError:
        raise missing from None
    logging.getLogger("autosched_runtime").warning("%s: ONNX Runtime runs the model", missing)
    theirs = onnxruntime.SessionOptions()
    for name, value in (options or SessionOptions()).changed().items():
        setattr(theirs, name, value)
    return onnxruntime.InferenceSession(model, theirs, *words, **named)
