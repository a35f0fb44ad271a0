"""Forms of a loaded model that the methods to fit a budget ask for: float or quantized, of windows or of a stream."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import tvm

from codegen_c.custom.registry import run_reference
from relay_passes.dataflow import outputs, static_shape
from tvm_ext.compilation.stages import changing, quantizing, streaming
from tvm_ext.core.decisions.models import ChangedPorts, HopCost, KeptStates, PortNames, QuantizationMeasured
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.frontends.calibration import Calibration, Source, read_calibration
from tvm_ext.frontends.custom_calls import register_references
from tvm_ext.frontends.shapes import ModelNotice

Forms = Callable[[Quantize], tvm.IRModule]
"""Function from the value of `quantize` to the loaded module in that form."""


def forms_of(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, data: Calibration | None, *, saved_bytes: int = 0
) -> Forms:
    """Return the forms of a loaded module: float, or quantized by `data`, with inputs and outputs as the options say.

    data: the result of `calibration_of`.
    saved_bytes: bytes of weights that 4-bit weights must save in addition to what the options ask for.
    """

    @cache
    def form(quantize: Quantize) -> tvm.IRModule:
        formed = mod
        if quantize != "none" and data is not None:
            register_references(mod, run_reference)  # quantizing runs the model on the calibration data
            with native_warnings_dropped():
                formed = tvm.transform.Sequential(quantizing(platform, options, data, saved_bytes))(mod)
            if quantize == options.quantize == "int8":
                _say_costs(QuantizationMeasured.read(formed).report or {})
        _check_labels(formed, options)
        return tvm.transform.Sequential(changing(options))(formed)

    return form


def _check_labels(mod: tvm.IRModule, options: BuildOptions) -> None:
    """Raise BadOptions if the number of labels differs from the number of classes of the output that they name."""
    names, indexed = PortNames.read(mod).outputs, ChangedPorts.read(mod).indexed
    if not options.labels or indexed:  # IndexOutputs has already counted the labels, and the classes are gone since
        return
    wanted = [name for name in names if name in options.argmax] or list(names)
    if len(wanted) != 1:
        raise BadOptions(
            f"labels: the model has several outputs, {', '.join(wanted)}. Name the output that has an element for each "
            "class with argmax."
        )
    shape = static_shape(dict(zip(names, outputs(mod["main"]), strict=False))[wanted[0]])
    if not shape or shape[-1] != len(options.labels):
        raise BadOptions(
            f"labels: {len(options.labels)} labels are given, but output {wanted[0]} of shape {list(shape)} has "
            f"{shape[-1] if shape else 'no'} classes along its last axis. Give a label for each class."
        )


def _say_costs(quantization: Mapping[str, Any]) -> None:
    """Warn if the quantized network is predicted to be slower or larger than the float network."""
    if "costs" not in quantization:
        return
    in_float, integers = (
        (costs["cycles"], costs["weights_bytes"] + costs["peak_bytes"])
        for costs in (quantization["costs"][dtype] for dtype in ("float32", "int8"))
    )
    compared = zip(("cycles", "bytes of constants and activations"), integers, in_float, strict=True)
    worse = [f"{ours:,} {unit} and in float {theirs:,}" for unit, ours, theirs in compared if ours > theirs]
    if worse:
        warnings.warn(
            f"quantize = 'int8': the network is predicted to take {', and '.join(worse)}. Compare with "
            "quantize = 'none'.",
            ModelNotice, stacklevel=2,
        )  # fmt: skip


def streamed_forms(forms: Forms, options: BuildOptions) -> Forms:
    """Return the forms with their window over time turned into a stream of new frames, if the options ask for it."""
    if not options.new_frames:
        return forms
    ((name, hop),) = options.new_frames.items()
    stages = streaming(name, hop, (options.time_axis or {}).get(name))

    @cache
    def form(quantize: Quantize) -> tvm.IRModule:
        stream = tvm.transform.Sequential(stages)(forms(quantize))
        _say_hop_cost(f"hop {name}={hop}", HopCost.read(stream))
        return stream

    return form


def _say_hop_cost(hop: str, cost: HopCost) -> None:
    """Warn if a run on new frames still computes operators for the whole window."""
    if cost.remarks:
        pays = "" if cost.macs < cost.window_macs else " new_frames makes this model slower: remove the option."
        warnings.warn(
            f"{hop}: a run computes {cost.macs:,} multiply-accumulates, a run on the whole window "
            f"{cost.window_macs:,}; "
            f"{'; '.join(cost.remarks)}.{pays}",
            ModelNotice,
            stacklevel=2,
        )


def calibration_of(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, calibration: Source | None
) -> Calibration | None:
    """Return the checked data that quantize a loaded module; None if the options do not quantize it.

    Raises BadOptions if the data and the options contradict each other, and BadInput for data that do not match.
    """
    if options.quantize == "none":
        if calibration is not None:
            raise BadOptions("calibration data is given, but quantize = 'none': choose quantize = 'int8' or 'auto'.")
        return None
    if calibration is None:
        raise BadOptions(
            f"quantize = {options.quantize!r} needs calibration data: samples of the inputs that the model will see. "
            "Give them as calibration, on the command line with --calibration FILE.npz."
        )
    if options.io_type == "float32" and platform.processor.fpu == "none":
        raise BadOptions(f"io_type = 'float32': {platform.name} has no FPU. Choose io_type = 'int8'.")
    # States are the last parameters of main; calibration data have only the inputs of the user.
    params = mod["main"].params[: len(mod["main"].params) - len(KeptStates.read(mod).states)]
    return read_calibration(calibration, {p.name: (static_shape(p), str(p.ty.dtype)) for p in params})
