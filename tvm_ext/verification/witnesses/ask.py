"""Ask witnesses what a model means, those first that are not our own reading of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm

from codegen_c.custom.registry import run_reference
from relay_passes.custom_uses import custom_use
from relay_passes.dataflow import bindings
from tvm_ext.core.decisions.models import (
    BoundInputs,
    FilledRows,
    KeptStates,
    LoadLimits,
    ModelOrigin,
    PortNames,
    RepeatedOutputs,
)
from tvm_ext.core.errors import TvmExtError, VerificationFailed
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.verification.witnesses.testimony import Array, Sample, Testimony, WitnessRefusal

LIMITS = ChildLimits(seconds=300.0, memory_bytes=12 << 30)


@dataclass(frozen=True, kw_only=True)
class Witness:
    """A runtime: its name in reports, the module that runs it, the package it needs and how that is had."""

    name: str
    module: str
    needs: str
    install: str


_ONNXRUNTIME = Witness(name="onnxruntime", module="onnxruntime_witness", needs="onnxruntime", install="onnxruntime")
_TFLITE_MICRO = Witness(
    name="TensorFlow Lite Micro", module="tflite_micro_witness", needs="tflite_micro", install="tvm-ext[witness]"
)
_LITERT = Witness(name="LiteRT", module="litert_witness", needs="ai_edge_litert", install="tvm-ext[witness]")
_TORCH = Witness(name="PyTorch", module="torch_witness", needs="torch", install="tvm-ext[torch]")
_OF_FORMAT: Mapping[str, tuple[Witness, ...]] = {
    "onnx": (_ONNXRUNTIME,),
    "tflite": (_TFLITE_MICRO, _LITERT),
    "torch": (_TORCH,),
    "relax": (),
}
TVM = "TVM"


def ask(mod: tvm.IRModule, samples: Sequence[Sample], inner: Sequence[str], *, quantized_here: bool) -> Testimony:
    """Testimony of the first witness that takes the model; TVM's virtual machine, which runs `mod`, comes last.

    Of a model with states the samples are steps in order, and the witness carries its own states from one to the next.
    mod: as `load` made it, or as it was quantized here, which no other runtime knows. inner: names of tensors inside
    the model. Raises VerificationFailed where nobody can run the model.
    """
    origin, names = ModelOrigin.read(mod), list(PortNames.read(mod).outputs)
    states = [
        {"name": state.name, "output": state.output, "initial": state.initial} for state in KeptStates.read(mod).states
    ]
    repeated = RepeatedOutputs.read(mod).repeated or {}
    in_file = {name: repeated.get(name, name) for name in names}
    refusals: list[WitnessRefusal] = []
    whole = [{**(BoundInputs.read(mod).values or {}), **sample} for sample in samples]
    for witness in () if quantized_here else _OF_FORMAT[origin.source_format]:
        file = (origin.path, origin.sha256, LoadLimits.read(mod).limits.to_json())
        said = _testified(witness.module, witness.needs, witness.install, (*file, whole, inner, states))
        if not isinstance(said, str) and (
            missing := [name for name in in_file.values() if name not in said["outputs"][0]]
        ):
            said = f"gives no output called {missing[0]!r}"
        if not isinstance(said, str):
            rows = FilledRows.read(mod).rows or {}
            filled = [_filled(values, rows) for values in said["outputs"]]
            outputs = [{name: values[own] for name, own in in_file.items()} for values in filled]
            inside = [_filled(values, rows) for values in said["inner"]]
            return Testimony(
                witness=witness.name, own_reading="", refusals=tuple(refusals), outputs=outputs, inner=inside
            )
        refusals.append(WitnessRefusal(witness=witness.name, reason=said))
    values = (str(tvm.ir.save_json(mod)), names, samples, inner, states)
    said = _testified("tvm_witness", "tvm", "apache-tvm", values, run_reference)
    if isinstance(said, str):
        reasons = [*refusals, WitnessRefusal(witness=TVM, reason=said)]
        listed = "; ".join(f"{refusal.witness}: {refusal.reason}" for refusal in reasons)
        raise VerificationFailed(
            f"nothing runs the model for comparison: {listed}. Inputs that it takes may help (--verify-inputs); "
            "--verify none builds the package anyway, marked as not verified."
        )
    why = _why_own(origin.source_format, quantized_here, refusals)
    listed = ", ".join(_custom_operators(mod))
    if not listed:
        return Testimony(witness=TVM, own_reading=why, refusals=tuple(refusals), **said)
    remark = f"{listed}: what the reference of its CustomOperator computes, which is no runtime's"
    why = f"{why}; {remark}" if why else remark
    name = f"{TVM} with the CustomOperator's own reference of {listed}"
    return Testimony(witness=name, own_reading=why, refusals=tuple(refusals), **said)


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


def _why_own(source_format: str, quantized_here: bool, refusals: Sequence[WitnessRefusal]) -> str:
    if quantized_here:
        return "the model was quantized here, so no other runtime has it"
    if source_format == "relax":
        return ""  # TVM is the runtime of the module that was handed over
    return "; ".join(f"{refusal.witness}: {refusal.reason}" for refusal in refusals)


def _testified(
    module: str,
    needs: str,
    install: str,
    values: tuple[object, ...],
    answers: Callable[..., object] | None = None,
) -> dict[str, list[dict[str, Array]]] | str:
    """Outputs and inner tensors, or why there are none. answers: what the witness asks on its way."""
    try:
        with Child(f"tvm_ext.verification.witnesses.{module}", limits=LIMITS) as child:
            return child.call("testify", *values, ask=answers)
    except TvmExtError as error:
        text = str(error)
        if "ModuleNotFoundError" in text and needs in text:
            return f"is not installed (pip install '{install}')"
        return _one_line(text.removeprefix(f"tvm_ext.verification.witnesses.{module}.testify "))


def _one_line(text: str) -> str:
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return joined if len(joined) <= 300 else f"{joined[:297]}..."
