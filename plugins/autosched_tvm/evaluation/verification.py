"""Judges builds of a network by their outputs, over several samples of inputs. Runs in a child process."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from autosched.backend import NO_NUMBER
from autosched.errors import RequestError
from autosched_tvm.compile import model_sources
from autosched_tvm.compile.frontend.model_file import kind_of_file
from autosched_tvm.compile.network_compiler import DEFAULT, TUNED, UNSCHEDULED
from autosched_tvm.compile.side_file import side_of
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.device.place import Place, place_of
from autosched_tvm.evaluation import input_samples, isolated_run, kept_samples, special_values
from autosched_tvm.evaluation.kernel_comparison import KernelComparison
from autosched_tvm.evaluation.non_onnx_reference import OTHER_NAMES, OtherReference
from autosched_tvm.evaluation.onnx_reference import Reference, perturbed_inputs
from autosched_tvm.evaluation.output_comparison import Expected, Tolerances
from autosched_tvm.evaluation.standard_reference import StandardReference
from autosched_tvm.evaluation.verification_messages import Check, Request, VerificationResult
from autosched_tvm.tensors import Array
from autosched_tvm.worker_failures import gist

SLOW_RUN_S = 5.0
"""Duration of an untuned inference above which it runs for the first sample only, in seconds."""
PLAUSIBLE_SHARE = 1e-3
"""Maximum error of the untuned build, as a share of an output's largest value, for which it counts as correct. Its
differences then widen the tolerance of the tuned build, which has the same operators."""
UNTUNED = "the untuned build"


class Judge:
    """Expected outputs of one network for several samples, and their tolerances.

    How far other correct results are apart is measured when a build first exceeds the tolerance without them: it takes
    two to six times as long as the expected outputs, and widens the tolerance.
    """

    def __init__(
        self,
        request: Request,
        inputs: Sequence[Mapping[str, Array]],
        default: LoadedModule | None,
        place: Place | None = None,
        *,
        integers: bool,
        unscheduled: Path | None = None,
    ) -> None:
        """`default`: the untuned build. `place`: where builds run; None: here. `integers`: the builds multiply 8-bit
        integers of a quantised model. `unscheduled`: the form of tuned builds without schedules, with which their
        kernels are compared; None: they are not. They are not on a board, nor if the user gave a tolerance of the
        outputs. Raises RequestError where neither the untuned build nor another engine gives a reference."""
        self.inputs, self._place = list(inputs), place
        self._kernels: KernelComparison | None = None
        if unscheduled is not None and place is None and request.share is None:
            self._kernels = KernelComparison(unscheduled)
        self._apart = request.apart
        self.notes: list[str] = []
        self.outputs: list[list[Array]] = []
        """Outputs of the tuned build that was compared last, for each sample."""
        self.default: Check | None = None
        """Difference of the untuned build; None without one."""
        reference = reference_of(request, self.inputs[0], integers=integers)
        if isinstance(reference, StandardReference):
            del self.inputs[reference.samples_max :]
        self._engine = reference
        self.verified = not isinstance(reference, str)
        """Whether another engine than TVM gives the reference."""
        if isinstance(reference, OtherReference) and not reference.exact:
            reference = self._inexact(reference, default)
        self.reference = UNTUNED if isinstance(reference, str) else reference.name
        self._names = [output.name for output in default.info.outputs] if default is not None else []
        self._spread_of: Reference | OtherReference | StandardReference | None = None
        """Reference whose other correct results were not measured yet."""
        self._default_outputs: list[list[Array]] = []
        """Outputs of the untuned build, for the first samples."""
        if isinstance(reference, str):
            if default is None:
                raise RequestError(f"{reference}, so there is nothing to compare with")
            self.notes.append(f"{reference}: outputs are compared with the untuned build")
            expected = [_by_default(default, one, seed) for seed, one in enumerate(self.inputs)]
            self.tolerances = Tolerances(expected, self._names, request.share)
            self.default = Check(True, 0.0, self.tolerances.largest)
        else:
            self._names = self._names or reference.names
            expected = [reference.expected(one, seed, alone=True) for seed, one in enumerate(self.inputs)]
            self.notes += reference.notes
            self._spread_of = None if request.share is not None else reference
            self.tolerances = Tolerances(expected, self._names, request.share)
            if default is not None:
                self._judge_default(expected, default, request.share)
        self.notes += [note for note in self.tolerances.notes() if note not in self.notes]

    def _inexact(self, reference: OtherReference, default: LoadedModule | None) -> str:
        """Returns a note on the distance of the float form from an engine that computes with quantised numbers."""
        if default is not None:
            shares = []
            for want, found in zip(reference.run(self.inputs[0]), default.run(self.inputs[0]), strict=True):
                left, right = want.astype("float64"), found.astype("float64")
                shares.append(
                    float(np.max(np.abs(left - right), initial=0.0) / (np.max(np.abs(left), initial=0.0) or 1))
                )
            self.notes.append(
                "the model is quantised; builds compute in float32 and do not round activations, so that their outputs"
                f" differ from those of {reference.name} by up to {max(shares):.1%} of the largest value"
            )
        return f"{reference.name} computes with quantised numbers"

    def check(self, module: LoadedModule) -> Check:
        """Runs a build on all samples and compares its outputs, then its kernels."""
        self.outputs = [module.run(one) for one in self.inputs]
        found = self._compared(self.outputs)
        return self._with_kernels(found, module)

    def check_file(self, build: Path) -> Check:
        """Does the same for the file of a build, in a separate process if the request asks for it: the build may
        crash."""
        if not self._apart or self._place is not None:
            return self.check(LoadedModule(build, place=self._place))
        try:
            self.outputs = isolated_run.outputs(build, self.inputs)
            found = self._compared(self.outputs)
        except isolated_run.Crashed as error:
            return Check(False, NO_NUMBER, 0.0, crash=str(error))
        return self._with_kernels(found, build)

    def note_special_values(self, build: Path) -> None:
        """Adds a note where a build differs for NaN and infinities."""
        if isinstance(self._engine, Reference):
            run = self._engine.expected
            said = special_values.note(build, self.inputs[0], lambda one: run(one, alone=True).outputs, self._names)
            self.notes += [said] if said else []

    def keep_samples(self, tuned: Path, check: Check) -> None:
        """Writes samples beside the tuned build that was compared last, if it is correct, and beside the untuned
        one."""
        names, limits = [output.name for output in side_of(tuned).outputs], self.tolerances.common
        kept_samples.keep(tuned, self.inputs, self.outputs if check.equal else [], names, limits)
        kept_samples.keep(tuned.with_name(DEFAULT), self.inputs, self._default_outputs, names, limits)

    def _with_kernels(self, found: Check, build: LoadedModule | Path) -> Check:
        """Returns the result of a build; where its outputs are correct, that of a kernel which differs."""
        if not found.equal or self._kernels is None:
            return found
        module = LoadedModule(build) if isinstance(build, Path) else build
        worst, note = self._kernels.check(module, self.inputs)
        if note and note not in self.notes:
            self.notes.append(note)
        return found if worst.equal else worst

    def _compared(self, outputs: Sequence[Sequence[Array]]) -> Check:
        """Compares the outputs of a build for all samples; the tolerance is widened where that may matter."""
        found = self.tolerances.check(outputs)
        if found.equal or self._spread_of is None:
            return found
        self._widen(self._spread_of)
        return self.tolerances.check(outputs)

    def _widen(self, reference: Reference | OtherReference | StandardReference) -> None:
        """Widens the tolerance by what correct results differ."""
        expected = [reference.expected(one, seed) for seed, one in enumerate(self.inputs)]
        self._spread_of = None
        if self._default_outputs:
            expected = self._with_default(expected)
        self.tolerances = Tolerances(expected, self._names)
        self.notes += [note for note in self.tolerances.notes() if note not in self.notes]

    def _judge_default(self, expected: Sequence[Expected], default: LoadedModule, share: float | None) -> None:
        """Compares the untuned build, which may be slow: then for the first sample only."""
        started = time.perf_counter()
        outputs = [default.run(self.inputs[0])]
        if time.perf_counter() - started <= SLOW_RUN_S:
            outputs += [default.run(one) for one in self.inputs[1:]]
        self._default_outputs = outputs
        self.default = Tolerances(expected[: len(outputs)], self._names, share).check(outputs)
        if not self.default.equal and self._spread_of is not None:
            self._widen(self._spread_of)

    def _with_default(self, expected: list[Expected]) -> list[Expected]:
        """Returns the expected outputs with those of the untuned build among the correct ones, if they are."""
        names, outputs = self._names, self._default_outputs
        seen = expected[: len(outputs)]
        plausible = Tolerances(seen, names, PLAUSIBLE_SHARE).check(outputs)
        strict = Tolerances(seen, names).check(outputs)
        self.default = strict if strict.equal or not plausible.equal else plausible
        near = [msgspec.structs.replace(one, rounds=False) for one in seen]  # distances do not widen each other
        if not plausible.equal and not Tolerances(near, names).check(outputs).equal:
            return expected
        widened = [
            msgspec.structs.replace(one, others=(*one.others, tuple(got)))
            for one, got in zip(seen, outputs, strict=True)
        ]
        return [*widened, *expected[len(outputs) :]]


def reference_of(
    request: Request, inputs: Mapping[str, Array], *, integers: bool
) -> Reference | OtherReference | StandardReference | str:
    """Returns the results of ONNX Runtime, or of the engine for another file format; where ONNX Runtime cannot run the
    model, those of the standard's reference implementation for one sample; or the reason why there are none."""
    trouble = ""
    if (kind := kind_of_file(Path(request.models[0]))) in OTHER_NAMES:
        try:
            return OtherReference(Path(request.models[0]), kind, request.threads)
        except ImportError:
            return f"{OTHER_NAMES[kind]} is not installed"
        except Exception as error:  # as below
            return f"{OTHER_NAMES[kind]} cannot run the model: {gist(error)[:200]}"
    for model in request.models:
        try:
            found = Reference(Path(model), request.threads, integers=integers)
            found.expected(inputs, 0, alone=True)  # some models load, and do not run
            return found
        except ImportError:
            trouble = "ONNX Runtime is not installed"
            break
        except Exception as error:  # ONNX Runtime refuses some models that TVM runs, which is no failure here
            said = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            trouble = trouble or f"ONNX Runtime cannot run the model: {said}"
    if not request.models:
        return "there is no form of the model for ONNX Runtime"
    try:
        return StandardReference(Path(request.models[0]), inputs)
    except Exception as error:  # it raises the errors of Python and NumPy
        return f"{trouble}, nor can {StandardReference.name} ({gist(error)[:200]})"


def _by_default(default: LoadedModule, inputs: Mapping[str, Array], seed: int) -> Expected:
    moved = default.run(perturbed_inputs(inputs, np.random.default_rng(seed)))
    return Expected(tuple(default.run(inputs)), (tuple(moved),))


def verify(builds: str, request: Request) -> VerificationResult:
    """Judges `builds`/tuned and, if it is there, `builds`/default. The result is empty if nothing gives a reference,
    for which a default build would do."""
    tuned, default = Path(builds) / TUNED, Path(builds) / DEFAULT
    inputs = input_samples.of(side_of(tuned).inputs, request.samples)
    with place_for(request) as place:
        untuned = LoadedModule(default, place=place) if exists(default) else None
        try:
            judge = judge_of(request, tuned, inputs, untuned, place)
        except RequestError:
            if untuned is None:
                return VerificationResult({}, "")
            raise
        checks = {} if judge.default is None else {DEFAULT: judge.default}
        checks[TUNED] = judge.check_file(tuned)
        judge.keep_samples(tuned, checks[TUNED])
        if checks[TUNED].equal and place is None and not request.samples:
            judge.note_special_values(tuned)
        return VerificationResult(checks, judge.reference, judge.verified, tuple(judge.notes), len(judge.inputs))


def exists(build: Path) -> bool:
    """Returns whether there is a build, whose files are named without their suffixes."""
    return build.with_name(f"{build.name}.so").exists()


def judge_of(
    request: Request, build: Path, inputs: Sequence[Mapping[str, Array]], default: LoadedModule | None = None,
    place: Place | None = None,
) -> Judge:  # fmt: skip
    """Returns a judge of a tuned build, and of others of its network. Raises RequestError where nothing gives a
    reference."""
    integers, form = side_of(build).integers, build.with_name(UNSCHEDULED)
    unscheduled = form if integers and exists(form) else None
    return Judge(request, inputs, default, place, integers=integers, unscheduled=unscheduled)


@contextmanager
def place_for(request: Request) -> Iterator[Place | None]:
    """Opens the place where the builds of a request run; None: here. Raises DeviceLost."""
    if request.remote is None:
        yield None
    else:
        with place_of(request.remote) as place:
            yield place


def verify_module(module: str, request: Request, inputs: Sequence[Mapping[str, Array]]) -> VerificationResult:
    """Judges one module, as "tuned". Raises RequestError where ONNX Runtime cannot run the model."""
    with place_for(request) as place:
        build = Path(module)
        judge = judge_of(request, build, inputs, place=place)
        check = judge.check_file(build)
        if request.keeps_samples:
            judge.keep_samples(build, check)
        return VerificationResult(
            {TUNED: check}, judge.reference, judge.verified, tuple(judge.notes), len(judge.inputs)
        )


def check_samples(model: str, file: str) -> int:
    """Returns the number of samples of a prepared model's inputs in a file. Raises RequestError for a file that does
    not fit."""
    return len(input_samples.read(Path(file), model_sources.load(Path(model)).inputs))


def first_sample(model: str, file: str) -> dict[str, Array]:
    """Returns inputs of a prepared model: the first sample in the user's file, or a generated one without a file.

    Raises RequestError for a file that does not fit.
    """
    return input_samples.of(model_sources.load(Path(model)).inputs, file)[0]
