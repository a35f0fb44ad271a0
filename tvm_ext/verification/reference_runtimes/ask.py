"""Ask reference runtimes for a model's outputs. Runtimes that do not share our importer come first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import tvm
from tvm.relax import TensorType

from codegen_c.custom.registry import run_reference
from relay_passes.composites import custom_use
from relay_passes.dataflow import bindings, static_shape
from tvm_ext.core.changed_inputs import ChangedInput
from tvm_ext.core.decisions.models import (
    BoundInputs,
    ChangedPorts,
    FilledRows,
    KeptStates,
    LoadLimits,
    ModelOrigin,
    PortNames,
    RepeatedOutputs,
)
from tvm_ext.core.errors import TvmExtError, VerificationFailed
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.verification.float64_module import multiply_accumulates
from tvm_ext.verification.judge_floats import Evaluation
from tvm_ext.verification.reference_runtimes import float64_runtime, tvm_runtime
from tvm_ext.verification.reference_runtimes.reference_result import Array, ReferenceResult, RuntimeRefusal, Sample

_MOST_MACS_HERE, _MOST_ELEMENTS_HERE = 200_000_000, 20_000_000
"""Multiply-accumulates of all samples, and elements of all tensors, up to which TVM runs a module in this process."""
LIMITS = ChildLimits(seconds=300.0, memory_bytes=12 << 30)


@dataclass(frozen=True, kw_only=True)
class ReferenceRuntime:
    """A runtime: its name in reports, the module that runs it, the package it needs and how that is had.

    modes: what its own mode and its other one are called; empty where it has one only.
    """

    name: str
    module: str
    needs: str
    install: str
    modes: tuple[str, ...] = ()


_ONNXRUNTIME = ReferenceRuntime(
    name="onnxruntime", module="onnxruntime_runtime", needs="onnxruntime", install="onnxruntime",
    modes=("onnxruntime without its optimizer", "onnxruntime with its optimizer"),
)  # fmt: skip
_TFLITE_MICRO = ReferenceRuntime(
    name="TensorFlow Lite Micro", module="tflite_micro_runtime", needs="tflite_micro", install="tvm-ext[reference]"
)
_LITERT = ReferenceRuntime(
    name="LiteRT", module="litert_runtime", needs="ai_edge_litert", install="tvm-ext[reference]",
    modes=("LiteRT's reference kernels", "LiteRT's default kernels (XNNPACK)"),
)  # fmt: skip
_TORCH = ReferenceRuntime(name="PyTorch", module="torch_runtime", needs="torch", install="tvm-ext[torch]")
_OF_FORMAT: Mapping[str, tuple[ReferenceRuntime, ...]] = {
    "onnx": (_ONNXRUNTIME,),
    "tflite": (_TFLITE_MICRO, _LITERT),
    "torch": (_TORCH,),
    "relax": (),
}
TVM = "TVM"
QUANTIZED_HERE = "the model was quantized here, so no other runtime has it"


def ask(mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str], *, quantized_here: bool) -> ReferenceResult:
    """ReferenceResult of the first reference runtime that takes the model; TVM's virtual machine, which runs `mod`,
    comes last.

    Of a model with states the samples are steps in order, and the reference runtime carries its own states from one to
    the next. mod: as `load` made it, or as it was quantized here, which no other runtime knows. inner: names of tensors
    inside the model. Raises VerificationFailed where nobody can run the model.
    """
    said, refusals = (None, ()) if quantized_here else ask_others(mod, samples, inner)
    if said is not None:
        return said
    found = _run_here(mod, samples, inner)
    if isinstance(found, str):
        reasons = [*refusals, RuntimeRefusal(runtime=TVM, reason=found)]
        listed = "; ".join(f"{refusal.runtime}: {refusal.reason}" for refusal in reasons)
        raise VerificationFailed(
            f"nothing runs the model for comparison: {listed}. Inputs that it takes may help (--verify-inputs); "
            "--verify none builds the package anyway, marked as not verified."
        )
    why = _why_own(ModelOrigin.read(mod).source_format, quantized_here, refusals)
    listed = ", ".join(_custom_operators(mod))
    if not listed:
        return ReferenceResult(runtime=TVM, own_reading=why, refusals=tuple(refusals), **found)
    remark = f"{listed}: what the reference of its CustomOperator computes, which is no runtime's"
    why = f"{why}; {remark}" if why else remark
    name = f"{TVM} with the CustomOperator's own reference of {listed}"
    return ReferenceResult(runtime=name, own_reading=why, refusals=tuple(refusals), **found)


def run_module(mod: tvm.IRModule, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Outputs of a module on TVM's virtual machine. Raises VerificationFailed where it does not run."""
    found = _run_here(mod, samples, ())
    if isinstance(found, str):
        raise VerificationFailed(f"TVM does not run the module: {found}")
    return found["outputs"]


def _run_here(
    mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]
) -> dict[str, list[dict[str, Array]]] | str:
    return _by_tvm(tvm_runtime, mod, samples, inner)


def ask_others(
    mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]
) -> tuple[ReferenceResult | None, tuple[RuntimeRefusal, ...]]:
    """ReferenceResult of the first runtime of the file's own format that takes it, None without one; and the
    refusals."""
    refusals: list[RuntimeRefusal] = []
    rows = FilledRows.read(mod).rows or {}
    for runtime in _OF_FORMAT[ModelOrigin.read(mod).source_format]:
        said = _said(runtime, mod, samples, inner)
        if isinstance(said, str) and inner:  # some runtimes fail when they are to show what is inside
            said = _said(runtime, mod, samples, ())
        if isinstance(said, str):
            refusals.append(RuntimeRefusal(runtime=runtime.name, reason=said))
            continue
        outputs = [_filled(values, rows) for values in said["outputs"]]
        inside = [_filled(values, rows) for values in said["inner"]]
        made = ReferenceResult(
            runtime=runtime.name, own_reading="", refusals=tuple(refusals), outputs=outputs, inner=inside
        )
        return made, tuple(refusals)
    return None, tuple(refusals)


@dataclass(frozen=True, kw_only=True, eq=False)
class OtherMode:
    """Outputs of a runtime in both of its modes, whose names are `modes`."""

    modes: tuple[str, ...]
    outputs: Sequence[tuple[Sample, Sample]]


def ask_modes(mod: tvm.IRModule, samples: Sequence[Sample]) -> OtherMode | None:
    """Outputs of the first runtime of the file's format that has two modes and takes the file in both; None without."""
    for runtime in _OF_FORMAT[ModelOrigin.read(mod).source_format]:
        if not runtime.modes:
            continue
        one, other = (_said(runtime, mod, samples, (), other_mode=mode) for mode in (False, True))
        if not isinstance(one, str) and not isinstance(other, str):
            pairs = list(zip(one["outputs"], other["outputs"], strict=True))
            return OtherMode(modes=runtime.modes, outputs=pairs)
    return None


def evaluate(mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]) -> Evaluation | str:
    """The module in float64 and the noise of rounding, of outputs and inner tensors; or why there is none."""
    found = _by_tvm(float64_runtime, mod, samples, inner)
    return found if isinstance(found, str) else Evaluation(**found)


def _by_tvm(
    runtime: ModuleType, mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]
) -> dict[str, list[dict[str, Array]]] | str:
    """What a reference runtime that needs TVM makes of a module, or why it gives nothing.

    A child process imports TVM first, which takes two seconds; small modules are run in this process instead.
    """
    values = (str(tvm.ir.save_json(mod)), list(PortNames.read(mod).outputs), samples, inner, _carried(mod))
    if _is_small(mod, len(samples)):
        try:
            return runtime.run_reference(*values, ask=run_reference)
        except Exception as error:
            return _one_line(f"raised {type(error).__name__}: {error}")
    return _testified(runtime.__name__.rpartition(".")[2], "tvm", "apache-tvm", values, run_reference)


def _is_small(mod: tvm.IRModule, num_samples: int) -> bool:
    """True for modules that run within seconds and megabytes."""
    elements = sum(math.prod(static_shape(b.var)) for b in bindings(mod["main"]) if isinstance(b.var.ty, TensorType))
    return multiply_accumulates(mod) * num_samples <= _MOST_MACS_HERE and elements <= _MOST_ELEMENTS_HERE


def _carried(mod: tvm.IRModule) -> list[dict[str, object]]:
    return [
        {"name": state.name, "output": state.output, "initial": state.initial} for state in KeptStates.read(mod).states
    ]


def _said(
    runtime: ReferenceRuntime,
    mod: tvm.IRModule,
    samples: Sequence[Sample],
    inner: Sequence[str],
    *,
    other_mode: bool = False,
) -> dict[str, list[dict[str, Array]]] | str:
    """What a runtime makes of the file, or why it gives nothing."""
    origin, changed = ModelOrigin.read(mod), ChangedPorts.read(mod)
    whole = [{**(BoundInputs.read(mod).values or {}), **sample} for sample in samples]
    whole = [in_file_form(sample, changed.inputs or {}) for sample in whole]
    values = (origin.path, origin.sha256, LoadLimits.read(mod).limits.to_json(), whole, inner, _carried(mod))
    said = _testified(runtime.module, runtime.needs, runtime.install, (*values, True) if other_mode else values)
    if isinstance(said, str):
        return said
    repeated = RepeatedOutputs.read(mod).repeated or {}
    in_file = {name: repeated.get(name, name) for name in PortNames.read(mod).outputs}
    missing = [own for own in in_file.values() if own not in said["outputs"][0]]
    if missing:
        return f"gives no output called {missing[0]!r}"
    outputs = [{name: one[own] for name, own in in_file.items()} for one in said["outputs"]]
    return indexed({**said, "outputs": outputs}, changed.indexed, inner)


def _filled(values: Sample, rows: Mapping[str, int]) -> dict[str, Array]:
    """The tensors with rows of -1 behind those that data selected, as many as a package has."""
    filled = dict(values)
    for name in rows.keys() & values.keys():
        missing = max(rows[name] - len(values[name]), 0)
        filled[name] = np.pad(values[name], ((0, missing), (0, 0)), constant_values=-1)
    return filled


def _custom_operators(mod: tvm.IRModule) -> list[str]:
    """Names of the custom operators that a module calls, each once."""
    uses = (custom_use(binding.value) for binding in bindings(mod["main"]))
    return sorted({use.operator for use in uses if use})


def _why_own(source_format: str, quantized_here: bool, refusals: Sequence[RuntimeRefusal]) -> str:
    if quantized_here:
        return QUANTIZED_HERE
    if source_format == "relax":
        return ""  # TVM is the runtime of the module that was handed over
    return "; ".join(f"{refusal.runtime}: {refusal.reason}" for refusal in refusals)


def _testified(
    module: str,
    needs: str,
    install: str,
    values: tuple[object, ...],
    answers: Callable[..., object] | None = None,
) -> dict[str, list[dict[str, Array]]] | str:
    """Outputs and inner tensors, or why there are none. answers: what the reference runtime asks on its way."""
    try:
        with Child(f"tvm_ext.verification.reference_runtimes.{module}", limits=LIMITS) as child:
            return child.call("run_reference", *values, ask=answers)
    except TvmExtError as error:
        text = str(error)
        if "ModuleNotFoundError" in text and needs in text:
            return f"is not installed (pip install '{install}')"
        return _one_line(text.removeprefix(f"tvm_ext.verification.reference_runtimes.{module}.run_reference "))


def _one_line(text: str) -> str:
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return joined if len(joined) <= 300 else f"{joined[:297]}..."


Said = dict[str, list[dict[str, Array]]]


def in_file_form(sample: Sample, changed: Mapping[str, ChangedInput]) -> dict[str, Array]:
    """A sample as the file's own runtimes take it."""
    return {name: changed[name].to_file(array) if name in changed else array for name, array in sample.items()}


def of_real(sample: Sample, changed: Mapping[str, ChangedInput]) -> dict[str, Array]:
    """A sample of real numbers that the float model takes, in the form that firmware hands over."""
    return {name: changed[name].of_real(array) if name in changed else array for name, array in sample.items()}


def indexed(said: Said, names: Collection[str], inner: Sequence[str]) -> Said:
    """Outputs of a runtime with the index of the largest element of some; all elements of these are inner tensors."""
    if not names:
        return said
    outputs = [
        {name: array.argmax(-1).astype(np.int32) if name in names else array for name, array in one.items()}
        for one in said["outputs"]
    ]
    watched = [name for name in names if name in inner]
    inside = [
        {**{name: one[name] for name in watched}, **seen}
        for one, seen in zip(said["outputs"], said["inner"], strict=True)
    ]
    return {**said, "outputs": outputs, "inner": inside}
