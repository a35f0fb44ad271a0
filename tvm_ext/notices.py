"""Warnings of a build that leaves out what was asked for, computes otherwise than the file, or verifies little."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from codegen_c.backend.build import Compiled
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.report.report import float_operations

MOST_NAMES = 8
"""Operators that a warning names."""


def say_pipeline(compiled: Compiled, options: BuildOptions) -> None:
    """A notice where a pipeline was asked for, and the model takes one input at a time."""
    cores = [core.name for core in options.cores_of(compiled.platform)]
    if options.placement_objective != "throughput" or len(cores) < 2 or compiled.interface.is_pipeline:
        return
    reason = "values, or states, would go from one stage back to an earlier one"
    if compiled.placement is None:
        reason = f"two inputs at once do not fit {compiled.platform.activations}, or the ram that was asked for"
    elif compiled.parallel is None:
        reason = f"{cores[0]} alone is predicted to be as fast"
    warnings.warn(
        f"placement_objective = 'throughput': {compiled.interface.model} is no pipeline over {' and '.join(cores)}: "
        f"{reason}. {compiled.interface.run} takes one input at a time; there are no {compiled.interface.put} and "
        f"{compiled.interface.take}.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip


def say_weights(compiled: Compiled, options: BuildOptions) -> None:
    """A notice where weights of 4 bits were asked for, and no layer has them."""
    if options.weights == "int8" or any(call.weight_bits == 4 for call in compiled.program.kernel_calls()):
        return
    reason = "no layer that may have them leaves outputs at min_snr_db, or fits a kernel that takes them"
    if options.quantize != "int8":
        reason = (
            "no quantized layer has int8 weights from -8 to 7 and a kernel that takes them; of a float model "
            "quantize = 'int8' with calibration data makes them"
        )
    warnings.warn(
        f"weights = {options.weights!r}: all weights of {compiled.interface.model} are stored as they are: {reason}.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip


def say_floats(compiled: Compiled, nodes: Sequence[ModelNode]) -> None:
    """A warning where operators that the file has on quantized integers compute in float32.

    nodes: the model's operators.
    """
    emulated = [operation for operation in float_operations(compiled, nodes) if operation["emulated"]]
    if not emulated:
        return
    names = list(dict.fromkeys(node for operation in emulated for node in operation["source_nodes"]))
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    warnings.warn(
        f"{compiled.interface.model} computes {listed} in float32, on integers that the file has: no kernel takes them "
        "as integers. They take longer, above all without an FPU, and may be a unit off the format's runtime. "
        "float_operations of the report says why.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip


def say_doubts(model: str, doubts: Sequence[str]) -> None:
    """A notice for each output of which verification says little."""
    for doubt in doubts:
        warnings.warn(f"{model}: {doubt}.", ModelNotice, stacklevel=3)
