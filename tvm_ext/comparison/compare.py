"""Compare each layer of a package, on the host or on its board in QEMU, with what a runtime that is not ours gives.

Each value is compared twice: as the package's run gives it, with all errors before it; and as its layer gives it from
the reference's values, which is the layer's own error. A layer differs where its own error is beyond the tolerance:
one step of a quantized type and a quarter of one on average, 1e-4 of the largest magnitude of floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from tvm_ext.comparison.compared_values import ComparedValue, compared_values, step_lines
from tvm_ext.comparison.comparison import LayerComparison, PackageComparison, judged_value
from tvm_ext.comparison.runs import two_runs
from tvm_ext.core.errors import BadPackage, RunFailed
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import Target
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.execution.samples import Sample, check_inputs
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pair_states import Pairs
from tvm_ext.packages.model_file import model_file
from tvm_ext.packages.package import TRACE_FILE, Package
from tvm_ext.report.interface import bundle_names, firmware_of
from tvm_ext.verification.account import as_stored, source_of
from tvm_ext.verification.reference_runtimes.ask import ask

Array = np.ndarray


@short_tracebacks
def compare(
    package: Package | str | Path,
    inputs: Sample,
    *,
    reference: str | Path | None = None,
    on: Target = "host",
    bind: Mapping[str, ArrayLike] | None = None,
    states: Pairs | None = None,
    limits: Limits | None = None,
) -> PackageComparison:
    """Errors of every layer for one sample; a model with states begins reset.

    inputs: as `Package.run` takes them. reference: the model's file; None looks for the file that the package was made
    of in the working folder, and beside the package. bind, states, limits: as `load` was given them for the package.
    Raises BadInput, BadPackage, BadModel, UnsupportedModel, RunFailed, MissingTool, BuildFailed, VerificationFailed
    (nothing runs the model).
    """
    package = package if isinstance(package, Package) else Package.load(package)
    _check_comparable(package, on)
    check_inputs(package.interface, inputs)
    file = model_file(package.folder, package.report["model"], reference)
    shapes = {port.source: port.shape for port in package.interface.inputs}
    module = load(file, shapes=shapes, bind=bind, states=states, limits=limits)
    values, lines = compared_values(package.report, package.folder), step_lines(package.folder / TRACE_FILE)
    if len(lines) != len(package.report["steps"]):
        raise BadPackage(f"{package.folder}: report.json and trace.json are not of one build; compile the model again.")
    wanted = list(dict.fromkeys(source_of(value.tensor) for value in values))
    said = ask(module, [inputs], wanted, quantized_here=False)
    known = _known(values, {**inputs, **said.outputs[0], **said.inner[0]})
    values = [value for value in values if value.tensor.name in known or not value.only_moves]  # others are constants
    looked_at = [value for value in values if not value.absent]
    runs = two_runs(package, looked_at, lines, inputs, known, on)
    ports = {port.name: port for port in package.interface.outputs}
    layers: list[LayerComparison] = []
    for value in values:
        name, port = value.tensor.name, ports.get(value.tensor.name)
        pair = (runs.fed.get(name), runs.own.get(name))
        if value.absent and port:  # the caller has it
            pair = (runs.fed_outputs[port.source], runs.own_outputs[port.source])
            layers.append(judged_value(value, said.outputs[0][port.source], *pair))
        else:
            layers.append(judged_value(value, known.get(name), *pair))
    return PackageComparison(
        model=package.interface.model, on=on, runtime=said.runtime, own_reading=said.own_reading, layers=tuple(layers)
    )


def _known(values: Sequence[ComparedValue], said: Mapping[str, Array]) -> dict[str, Array]:
    """The reference's values by the C's names, as the C stores them; without those that it does not have."""
    found = {value.tensor.name: as_stored(said.get(source_of(value.tensor)), value.tensor) for value in values}
    return {name: array for name, array in found.items() if array is not None}


def _check_comparable(package: Package, on: Target) -> None:
    """Raises RunFailed for packages whose steps are not looked at one by one, with the way out."""
    folder, interface = package.folder, package.interface
    if bundle_names(package.report):
        raise RunFailed(f"{folder}: is a model of a bundle; compile it by itself to compare its layers.")
    if interface.servers:
        raise RunFailed(
            f"{folder}: {1 + len(interface.servers)} processors share a run; compile it with processors = one of them "
            "to compare its layers."
        )
    if interface.warm_up_runs:
        raise RunFailed(
            f"{folder}: takes a window over time in parts; compile it without new_frames to compare its layers."
        )
    if package.report.get("quantization"):
        raise RunFailed(
            f"{folder}: the model was quantized here, and no other runtime has it so; quantization in report.json says "
            "what that cost. Compile the float model, or a quantized file, to compare its layers."
        )
    if on == "qemu" and firmware_of(folder, package.report) is None:
        raise RunFailed(f"{folder}: has no firmware for a board; compare on the host.")
