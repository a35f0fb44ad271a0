"""Forms of a loaded model that ways to fit ask for: float, quantized, of whole windows or of hops."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import tvm

from codegen_c.custom.registry import run_reference
from relay_passes.dataflow import outputs, static_shape
from tvm_ext.compilation.stages import changing, quantizing, streaming
from tvm_ext.core.decisions.models import ChangedPorts, HopCost, KeptStates, PortNames
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.frontends.calibration import Calibration, Source, read_calibration
from tvm_ext.frontends.custom_calls import register_references
from tvm_ext.frontends.shapes import ModelNotice

Forms = Callable[[Quantize], tvm.IRModule]
"""A loaded module, by the way it is quantized."""


def forms_of(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, data: Calibration | None, *, saved_bytes: int = 0
) -> Forms:
    """A loaded module as each way asks for it: float or quantized by the data of `calibration_of`, then its inputs and
    outputs in the form that the options ask for.

    saved_bytes: those that weights of 4 bits have to save, beyond what the options ask for.
    """

    @cache
    def form(quantize: Quantize) -> tvm.IRModule:
        made = mod
        if quantize != "none" and data is not None:
            register_references(mod, run_reference)  # quantizing runs the model
            with native_warnings_dropped():
                made = tvm.transform.Sequential(quantizing(platform, options, data, saved_bytes))(mod)
        _check_labels(made, options)
        return tvm.transform.Sequential(changing(options))(made)

    return form


def _check_labels(mod: tvm.IRModule, options: BuildOptions) -> None:
    """Raises BadOptions where labels are not as many as the classes of the output that they belong to."""
    names, indexed = PortNames.read(mod).outputs, ChangedPorts.read(mod).indexed
    if not options.labels or indexed:  # they were counted before
        return
    wanted = [name for name in names if name in options.argmax] or list(names)
    if len(wanted) != 1:
        raise BadOptions(
            f"labels: {', '.join(wanted)} are several outputs; say by argmax which one has an element for each class."
        )
    shape = static_shape(dict(zip(names, outputs(mod["main"]), strict=False))[wanted[0]])
    if not shape or shape[-1] != len(options.labels):
        raise BadOptions(
            f"labels: there are {len(options.labels)}; output {wanted[0]} of shape {list(shape)} has "
            f"{shape[-1] if shape else 'no'} classes along its last axis."
        )


def streamed_forms(forms: Forms, options: BuildOptions) -> Forms:
    """The forms with the window over time that they take turned into a stream of hops, where that is asked for."""
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
    """A notice where a hop computes more than what is new."""
    if cost.remarks:
        pays = "" if cost.macs < cost.window_macs else " new_frames makes this model slower: leave it out."
        warnings.warn(
            f"{hop}: a run computes {cost.macs:,} multiply-accumulates, a whole window {cost.window_macs:,}; "
            f"{'; '.join(cost.remarks)}.{pays}",
            ModelNotice,
            stacklevel=2,
        )


def calibration_of(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, calibration: Source | None
) -> Calibration | None:
    """Data that a loaded module is quantized with, checked; None where it is not to be quantized.

    Raises BadOptions, BadInput.
    """
    if options.quantize == "none":
        if calibration is not None:
            raise BadOptions("calibration data is given, but quantize = 'none'; ask for quantize = 'int8' or 'auto'.")
        return None
    if calibration is None:
        raise BadOptions(
            f"quantize = {options.quantize!r} needs calibration data: samples of what the model will see; give them as "
            "calibration, on the command line with --calibration FILE.npz."
        )
    if options.io_type == "float32" and platform.processor.fpu == "none":
        raise BadOptions(f"io_type = 'float32': {platform.name} has no FPU; leave inputs and outputs int8.")
    params = mod["main"].params[: len(mod["main"].params) - len(KeptStates.read(mod).states)]
    return read_calibration(calibration, {p.name: (static_shape(p), str(p.ty.dtype)) for p in params})
