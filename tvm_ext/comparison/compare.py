"""Compare each layer of a package, on the host or on its board in QEMU, with a reference runtime.

Each value is compared twice: from a run of the package, with the errors of all layers before it, and from its layer
alone applied to the reference's values, which shows the layer's own error. A layer differs if its own error exceeds the
tolerance: one step of a quantized type and a quarter of a step on average, or 1e-4 of the largest magnitude of floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from tvm_ext.comparison.compared_values import ComparedValue, compared_values
from tvm_ext.comparison.comparison import LayerComparison, PackageComparison, judged_value
from tvm_ext.comparison.runs import two_runs
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import Target
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.execution.samples import Sample, check_inputs
from tvm_ext.frontends.pair_states import Pairs
from tvm_ext.packages.model_file import loaded_again, model_file
from tvm_ext.packages.package import TRACE_FILE, Package
from tvm_ext.packages.step_lines import step_lines
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
    """Compare every layer of a package with a reference runtime for one sample.

    A model with states begins with its initial states.
    inputs: the sample, as `Package.run` takes it.
    reference: path of the model's file. None: the file from which the package was compiled, in the working folder or
    beside the package.
    bind, states, limits: the arguments of `load` for the package.
    Raises BadInput, BadPackage, BadModel, UnsupportedModel, RunFailed, MissingTool, BuildFailed, and VerificationFailed
    if no runtime can run the model.
    """
    package = package if isinstance(package, Package) else Package.load(package)
    _check_comparable(package, on)
    check_inputs(package.interface, inputs)
    file = model_file(package.folder, package.report["model"], reference)
    module = loaded_again(file, package.report, package.interface, bind=bind, states=states, limits=limits)
    values = compared_values(package.report, package.folder)
    lines = step_lines(package.folder / TRACE_FILE, len(package.report["steps"]))
    wanted = list(dict.fromkeys(source_of(value.tensor) for value in values))
    reported = ask(module, [inputs], wanted, quantized_here=False)
    known = _known(values, {**inputs, **reported.outputs[0], **reported.inner[0]})
    values = [value for value in values if value.tensor.name in known or not value.only_moves]  # moves of constants
    present = [value for value in values if not value.absent]
    runs = two_runs(package, present, lines, inputs, known, on)
    ports = {port.name: port for port in package.interface.outputs}
    layers: list[LayerComparison] = []
    for value in values:
        name, port = value.tensor.name, ports.get(value.tensor.name)
        pair = (runs.fed.get(name), runs.own.get(name))
        if value.absent and port:  # the output is in the caller's memory, and the run returns it
            pair = (runs.fed_outputs[port.source], runs.own_outputs[port.source])
            layers.append(judged_value(value, reported.outputs[0][port.source], *pair))
        else:
            layers.append(judged_value(value, known.get(name), *pair))
    return PackageComparison(
        model=package.interface.model,
        on=on,
        runtime=reported.runtime,
        own_reading=reported.own_reading,
        layers=tuple(layers),
    )


def _known(values: Sequence[ComparedValue], reported: Mapping[str, Array]) -> dict[str, Array]:
    """Return the reference's values by the C code's names, in the C code's layouts, for values that it has."""
    stored = {value.tensor.name: as_stored(reported.get(source_of(value.tensor)), value.tensor) for value in values}
    return {name: array for name, array in stored.items() if array is not None}


def _check_comparable(package: Package, on: Target) -> None:
    """Raise RunFailed for a package whose steps cannot be compared one by one. The message says what to do."""
    folder, interface = package.folder, package.interface
    if bundle_names(package.report):
        raise RunFailed(f"{folder}: is a model of a bundle. Compile it as a single package to compare its layers.")
    if interface.servers:
        raise RunFailed(
            f"{folder}: {1 + len(interface.servers)} processors share a run. Compile it with the option processors for "
            "one processor to compare its layers."
        )
    if interface.warm_up_runs:
        raise RunFailed(
            f"{folder}: a run takes only the new frames of a window. Compile it without new_frames to compare its "
            "layers."
        )
    if package.report.get("quantization"):
        raise RunFailed(
            f"{folder}: tvm_ext quantized the model, so that no other runtime has the quantized model; quantization in "
            "report.json has the errors. Compile the float model, or a quantized file, to compare its layers."
        )
    if on == "qemu" and firmware_of(folder, package.report) is None:
        raise RunFailed(f"{folder}: has no firmware for a board. Compare on the host.")
