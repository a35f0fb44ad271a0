"""Run reference runtimes to get a model's outputs. Runtimes that do not use our importer come first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Multiply-accumulates of all samples, and elements of all tensors, up to which TVM runs a module in this process.

Larger modules run in a child process with limits of time and memory."""
LIMITS = ChildLimits(seconds=300.0, memory_bytes=12 << 30)


@dataclass(frozen=True, kw_only=True)
class ReferenceRuntime:
    """A reference runtime.

    name: its name in reports. module: the module in this folder that runs it.
    needs: the package that the module imports. install: the requirement that `pip install` takes for the package.
    modes: names of its default mode and its other mode; empty for a runtime with one mode. is_other: True to run the
    other mode.
    """

    name: str
    module: str
    needs: str
    install: str
    modes: tuple[str, ...] = ()
    is_other: bool = False


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
LITERT_DEFAULT = replace(_LITERT, name="LiteRT's default kernels (XNNPACK)", modes=(), is_other=True)
_TORCH = ReferenceRuntime(name="PyTorch", module="torch_runtime", needs="torch", install="tvm-ext[torch]")
_TOSA = ReferenceRuntime(
    name="the TOSA reference model", module="tosa_runtime", needs="tosa_reference_model", install="tosa-tools"
)
_OF_FORMAT: Mapping[str, tuple[ReferenceRuntime, ...]] = {
    "onnx": (_ONNXRUNTIME,),
    "tflite": (_TFLITE_MICRO, _LITERT),
    "torch": (_TORCH,),
    "tosa": (_TOSA,),
    "relax": (),
}


def _runtimes_of(mod: tvm.IRModule) -> tuple[ReferenceRuntime, ...]:
    """Return the reference runtimes of a module, the best first: with the rounding of LiteRT, its default kernels."""
    origin = ModelOrigin.read(mod)
    known = _OF_FORMAT[origin.source_format]
    return (LITERT_DEFAULT, *known) if origin.rounding == "litert" else known


TVM = "TVM"
QUANTIZED_HERE = "the model was quantized here, so no other runtime has it"


def ask(mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str], *, quantized_here: bool) -> ReferenceResult:
    """Return the results of the first reference runtime that takes the model. TVM's virtual machine comes last.

    For a model with states the samples are consecutive steps, and the runtime keeps its own states between them.
    mod: the result of `load`, or a module that was quantized here, which only TVM can run.
    inner: names of inner tensors to return.
    Raises VerificationFailed if no runtime can run the model.
    """
    reported, refusals = (None, ()) if quantized_here else ask_others(mod, samples, inner)
    if reported is not None:
        return reported
    found = _run_here(mod, samples, inner)
    if isinstance(found, str):
        reasons = [*refusals, RuntimeRefusal(runtime=TVM, reason=found)]
        listed = "; ".join(f"{refusal.runtime}: {refusal.reason.rstrip('.')}" for refusal in reasons)
        raise VerificationFailed(
            f"no reference runtime can run the model: {listed}. Other samples may help (--verify-inputs); --verify "
            "none builds the package anyway, marked as not verified."
        )
    why = _why_own(ModelOrigin.read(mod).source_format, quantized_here, refusals)
    listed = ", ".join(_custom_operators(mod))
    if not listed:
        return ReferenceResult(runtime=TVM, own_reading=why, refusals=tuple(refusals), **found)
    remark = f"the results of {listed} are computed by the CustomOperator's own reference, not by another runtime"
    why = f"{why}; {remark}" if why else remark
    name = f"{TVM} with the CustomOperator's own reference of {listed}"
    return ReferenceResult(runtime=name, own_reading=why, refusals=tuple(refusals), **found)


def run_module(mod: tvm.IRModule, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Return the outputs of a module on TVM's virtual machine. Raises VerificationFailed if TVM cannot run it."""
    found = _run_here(mod, samples, ())
    if isinstance(found, str):
        raise VerificationFailed(f"TVM cannot run the module: {found}")
    return found["outputs"]


def _run_here(
    mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]
) -> dict[str, list[dict[str, Array]]] | str:
    return _run_by_tvm(tvm_runtime, mod, samples, inner)


def ask_others(
    mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]
) -> tuple[ReferenceResult | None, tuple[RuntimeRefusal, ...]]:
    """Return the results of the first runtime of the file's format that takes the file, and the refusals before it.

    The results are None if no runtime takes the file.
    """
    refusals: list[RuntimeRefusal] = []
    filled = FilledRows.read(mod)
    rows = filled.rows or {}
    for runtime in _runtimes_of(mod):
        reported = _run_on_file(runtime, mod, samples, inner, other_mode=runtime.is_other)
        if isinstance(reported, str) and inner:  # some runtimes fail only if they have to return inner tensors
            reported = _run_on_file(runtime, mod, samples, (), other_mode=runtime.is_other)
        if isinstance(reported, str):
            refusals.append(RuntimeRefusal(runtime=runtime.name, reason=reported))
            continue
        outputs = [_filled(values, rows) for values in reported["outputs"]]
        inside = [_filled(values, rows) for values in reported["inner"]]
        inside = [{name: array for name, array in values.items() if name not in filled.unlike} for values in inside]
        made = ReferenceResult(
            runtime=runtime.name, own_reading="", refusals=tuple(refusals), outputs=outputs, inner=inside
        )
        return made, tuple(refusals)
    return None, tuple(refusals)


@dataclass(frozen=True, kw_only=True, eq=False)
class OtherMode:
    """Outputs of a runtime in two modes. modes: their names. outputs: for each sample, the outputs in both modes."""

    modes: tuple[str, ...]
    outputs: Sequence[tuple[Sample, Sample]]


def ask_modes(mod: tvm.IRModule, samples: Sequence[Sample]) -> OtherMode | None:
    """Return the outputs of the first runtime that takes the file in both of its modes; None without such a runtime."""
    for runtime in _OF_FORMAT[ModelOrigin.read(mod).source_format]:
        if not runtime.modes:
            continue
        one, other = (_run_on_file(runtime, mod, samples, (), other_mode=mode) for mode in (False, True))
        if not isinstance(one, str) and not isinstance(other, str):
            pairs = list(zip(one["outputs"], other["outputs"], strict=True))
            return OtherMode(modes=runtime.modes, outputs=pairs)
    return None


def evaluate(mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]) -> Evaluation | str:
    """Return outputs and inner tensors of a module in float64 and their rounding noise, or the reason for a failure."""
    found = _run_by_tvm(float64_runtime, mod, samples, inner)
    return found if isinstance(found, str) else Evaluation(**found)


def _run_by_tvm(
    runtime: ModuleType, mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str]
) -> dict[str, list[dict[str, Array]]] | str:
    """Run a module by a reference runtime that uses TVM; return its results, or the reason for a failure.

    Small modules run in this process, because a child process needs two seconds to import TVM.
    """
    values = (str(tvm.ir.save_json(mod)), list(PortNames.read(mod).outputs), samples, inner, _carried(mod))
    if _is_small(mod, len(samples)):
        try:
            return runtime.run_reference(*values, ask=run_reference)
        except Exception as error:
            return _one_line(f"raised {type(error).__name__}: {error}")
    return _run_in_child(runtime.__name__.rpartition(".")[2], "tvm", "apache-tvm", values, run_reference)


def _is_small(mod: tvm.IRModule, num_samples: int) -> bool:
    """Return True for modules that need only seconds and megabytes."""
    elements = sum(math.prod(static_shape(b.var)) for b in bindings(mod["main"]) if isinstance(b.var.ty, TensorType))
    return multiply_accumulates(mod) * num_samples <= _MOST_MACS_HERE and elements <= _MOST_ELEMENTS_HERE


def _carried(mod: tvm.IRModule) -> list[dict[str, object]]:
    return [
        {"name": state.name, "output": state.output, "initial": state.initial} for state in KeptStates.read(mod).states
    ]


def _run_on_file(
    runtime: ReferenceRuntime,
    mod: tvm.IRModule,
    samples: Sequence[Sample],
    inner: Sequence[str],
    *,
    other_mode: bool = False,
) -> dict[str, list[dict[str, Array]]] | str:
    """Run the model's file by a runtime; return its results, or the reason for a failure."""
    origin, changed = ModelOrigin.read(mod), ChangedPorts.read(mod)
    whole = [{**(BoundInputs.read(mod).values or {}), **sample} for sample in samples]
    whole = [in_file_form(sample, changed.inputs or {}) for sample in whole]
    values = (origin.path, origin.sha256, LoadLimits.read(mod).limits.to_json(), whole, inner, _carried(mod))
    if origin.signature:
        values = (*values, other_mode, origin.signature)
    elif other_mode:
        values = (*values, True)
    reported = _run_in_child(runtime.module, runtime.needs, runtime.install, values)
    if isinstance(reported, str):
        return reported
    repeated = RepeatedOutputs.read(mod).repeated or {}
    in_file = {name: repeated.get(name, name) for name in PortNames.read(mod).outputs}
    missing = [own for own in in_file.values() if own not in reported["outputs"][0]]
    if missing:
        return f"gives no output with the name {missing[0]!r}"
    outputs = [{name: one[own] for name, own in in_file.items()} for one in reported["outputs"]]
    return indexed({**reported, "outputs": outputs}, changed.indexed, inner)


def _filled(values: Sample, rows: Mapping[str, tuple[int, int]]) -> dict[str, Array]:
    """Append rows of -1 to tensors whose number of rows depends on data, up to the number of rows in a package."""
    filled = dict(values)
    for name in rows.keys() & values.keys():
        (axis, count), array = rows[name], values[name]
        missing = [(0, max(count - extent, 0) if place == axis else 0) for place, extent in enumerate(array.shape)]
        filled[name] = np.pad(array, missing, constant_values=-1)
    return filled


def _custom_operators(mod: tvm.IRModule) -> list[str]:
    """Return the names of the custom operators that a module calls, each once, sorted."""
    uses = (custom_use(binding.value) for binding in bindings(mod["main"]))
    return sorted({use.operator for use in uses if use})


def _why_own(source_format: str, quantized_here: bool, refusals: Sequence[RuntimeRefusal]) -> str:
    if quantized_here:
        return QUANTIZED_HERE
    if source_format == "relax":
        return ""  # TVM is the own runtime of a Relax module
    return "; ".join(f"{refusal.runtime}: {refusal.reason}" for refusal in refusals)


def _run_in_child(
    module: str,
    needs: str,
    install: str,
    values: tuple[object, ...],
    answers: Callable[..., object] | None = None,
) -> dict[str, list[dict[str, Array]]] | str:
    """Call `run_reference` of a module in a child process; return its results, or the reason for a failure.

    answers: function in this process that the child may call, for references of custom operators.
    """
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


Results = dict[str, list[dict[str, Array]]]


def in_file_form(sample: Sample, changed: Mapping[str, ChangedInput]) -> dict[str, Array]:
    """Return a sample of the package in the form that the file's own runtimes take."""
    return {name: changed[name].to_file(array) if name in changed else array for name, array in sample.items()}


def of_real(sample: Sample, changed: Mapping[str, ChangedInput]) -> dict[str, Array]:
    """Return a sample of the float model, which is real numbers, in the form that firmware gives to the package."""
    return {name: changed[name].of_real(array) if name in changed else array for name, array in sample.items()}


def indexed(reported: Results, names: Collection[str], inner: Sequence[str]) -> Results:
    """Replace the outputs `names` of a runtime by the index of their largest element, as the package returns it.

    The elements themselves become inner tensors, for those names that `inner` contains.
    """
    if not names:
        return reported
    outputs = [
        {name: array.argmax(-1).astype(np.int32) if name in names else array for name, array in one.items()}
        for one in reported["outputs"]
    ]
    watched = [name for name in names if name in inner]
    inside = [
        {**{name: one[name] for name in watched}, **seen}
        for one, seen in zip(reported["outputs"], reported["inner"], strict=True)
    ]
    return {**reported, "outputs": outputs, "inner": inside}
