"""Windows over time: the inputs of a reference runtime for a package that takes the new frames of each window only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm

from codegen_c.backend.build import Compiled
from codegen_c.program import reference
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from relay_passes.dataflow import static_shape
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import WarmUp
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.verification.account import account_for
from tvm_ext.verification.reference_runtimes.ask import TVM, run_module
from tvm_ext.verification.reference_runtimes.reference_result import Array, ReferenceResult, Sample
from tvm_ext.verification.verify import difference, is_float, largest, tolerance_of

JUDGED_WINDOWS = 3
"""Number of first windows of a quantized model on which each step is judged. On other windows only outputs are."""


def windows_of(mod: tvm.IRModule, interface: Interface, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Return the window that ends with each sample, from the first full window on; the samples if no input is a stream.

    mod: the model of whole windows. samples: the package's samples, in order.
    """
    shapes = {param.name: static_shape(param) for param in mod["main"].params}
    windows = [dict(sample) for sample in samples]
    for port in interface.inputs:
        whole = shapes.get(port.source, port.shape)
        if whole == port.shape:
            continue
        (axis,) = (one for one, (a, b) in enumerate(zip(whole, port.shape, strict=True)) if a != b)
        frames = np.concatenate([sample[port.source] for sample in samples], axis)
        for run, window in enumerate(windows):
            end = (run + 1) * port.shape[axis]
            window[port.source] = np.take(frames, range(max(0, end - whole[axis]), end), axis)
    return windows[interface.warm_up_runs :]


def against_windows(
    mod: tvm.IRModule, given: Sequence[Sample], windows: Sequence[Sample], reported: ReferenceResult
) -> tuple[list[str], int]:
    """Compare a quantized package's outputs with those of the program of whole windows. Integers must be equal.

    The program of whole windows is compared with the reference runtime, step by step. given: outputs of the package.
    Returns a sentence for each difference, and the number of compared tensors.
    """
    whole = compile_module(mod, Platform.load("host"), BuildOptions())
    wanted = [_outputs(whole.program, whole.interface, window) for window in windows]
    scales = {name: max(largest(sample[name]) for sample in wanted) for name in (wanted[0] if wanted else ())}
    limit = tolerance_of(whole.program)
    errors = [
        f"output {name} of window {run} differs from the output for the whole window"
        for run, (outputs, sample) in enumerate(zip(given, wanted, strict=True))
        for name, array in sample.items()
        if difference(outputs[name], array, scales[name])[1] > (limit if is_float(array) else 0.0)
    ]
    count = min(JUDGED_WINDOWS, len(windows))
    judged = replace(
        reported, outputs=reported.outputs[:count], inner=reported.inner[:count], ties=reported.ties[:count]
    )
    account = account_for(whole, windows[:count], judged)
    return [*errors, *account.errors], account.tensors_compared


def against_kernels(compiled: Compiled, given: Sequence[Sample], samples: Sequence[Sample]) -> list[str]:
    """Compare a quantized stream's outputs with those of its kernels' references, run after run from the first states.

    given: outputs of the package from the first full window on. Returns a sentence for each difference.
    """
    program, interface, errors = compiled.program, compiled.interface, list[str]()
    states = reference.first_states(program)
    for run, sample in enumerate(samples, -interface.warm_up_runs):
        values = reference.run(program, _by_port(interface, sample), states)
        states = reference.next_states(program, values)
        for port in interface.outputs if run >= 0 else ():
            found, wanted = given[run][port.source], values[port.name].reshape(port.shape)
            limit = tolerance_of(program) if is_float(wanted) else 0.0
            if difference(found, wanted)[1] > limit:
                errors.append(f"output {port.source} of window {run} differs from its kernels' references")
    return errors


def with_ongoing_runs(first: ReferenceResult, stream: tvm.IRModule, samples: Sequence[Sample]) -> ReferenceResult:
    """Return the results of a runtime for the first full window, then TVM's for all runs after it.

    The states of recurrent layers go on after the first window, and no runtime of whole windows has these states.
    stream: the model as a stream. samples: the package's samples, in order.
    """
    later = run_module(stream, samples)[WarmUp.read(stream).runs + 1 :]
    both = f"{first.runtime} for the first window and {TVM} for the runs after it"
    return replace(first, runtime=TVM if first.runtime == TVM else both, outputs=[*first.outputs, *later])


def inner_of(mod: tvm.IRModule) -> list[str]:
    """Return the names of the model's tensors that the program of whole windows computes."""
    program = compile_module(mod, Platform.load("host"), BuildOptions()).program
    return list(dict.fromkeys(tensor.source for tensor in program.tensors.values()))


def _outputs(program: Program, interface: Interface, sample: Sample) -> dict[str, Array]:
    values = reference.run(program, _by_port(interface, sample))
    return {port.source: values[port.name].reshape(port.shape) for port in interface.outputs}


def _by_port(interface: Interface, sample: Mapping[str, Array]) -> dict[str, Array]:
    return {port.name: sample[port.source] for port in interface.inputs}
