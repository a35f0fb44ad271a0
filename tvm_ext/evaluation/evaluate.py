"""Evaluate a package on a user's data, and the model file beside it if the file is available."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from codegen_c.program.interface import Interface, Port
from tvm_ext.core.errors import BadInput, BadOptions, TvmExtError
from tvm_ext.evaluation.evaluation import PackageEvaluation, ReferenceScores, Scores, Task, scores_of, task_of
from tvm_ext.execution.batches import Inputs, arrays_of, batch_of, dequantized
from tvm_ext.execution.samples import Sample

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def evaluated(
    folder: Path, report: Mapping[str, Any], interface: Interface, x: Inputs, y: ArrayLike, run: Run, *, on: str,
    output: str | None, task: Task | None, class_names: Sequence[str] | None, reference: str | Path | bool | None,
) -> PackageEvaluation:  # fmt: skip
    """Evaluate a package on inputs x and true values y. run: returns the outputs of a batch.

    Raises BadInput, BadOptions.
    """
    if task not in (None, "classification", "regression"):
        raise BadOptions(f"task = {task!r}: give 'classification', 'regression', or None to derive the task from y.")
    port = _output(interface, output)
    arrays, targets = arrays_of(interface, x), np.asarray(y)
    count = len(batch_of(interface, arrays).samples)
    if targets.size % count or (targets.ndim and targets.size and len(targets) != count and count > 1):
        raise BadInput(f"y is {targets.dtype}{list(targets.shape)}; x holds {count} samples; y needs a row for each.")
    predicted = _rows(run(arrays)[port.source], port, count)
    chosen = task or task_of(targets, predicted)
    names = None if class_names is None else tuple(map(str, class_names))
    known, why = _reference(folder, report, interface, arrays, port, reference)
    return PackageEvaluation(
        model=interface.model, platform=str(report["platform"]), on=on, output=port.source,
        scores=scores_of(chosen, targets, predicted, names),
        reference=known and _reference_scores(known, chosen, targets, predicted, names), no_reference=why,
    )  # fmt: skip


def _output(interface: Interface, name: str | None) -> Port:
    """Return the output of this name, or the first output. Raises BadInput."""
    found = [port for port in interface.outputs if name in (None, port.source)]
    if not found:
        listed = ", ".join(port.source for port in interface.outputs)
        raise BadInput(f"output = {name!r}: {interface.model} has no output of this name; its outputs are {listed}.")
    return found[0]


def _rows(array: np.ndarray, port: Port, count: int) -> np.ndarray:
    """Return the outputs as real numbers, a row for each sample."""
    real = dequantized(port, array) if port.quantization is not None and array.dtype.kind != "f" else array
    return real.reshape(count, -1)


Known = tuple[str, np.ndarray]
"""Name of the runtime that ran the model file, and its outputs: a row of real numbers for each sample."""


def _reference(
    folder: Path, report: Mapping[str, Any], interface: Interface, arrays: Sample, port: Port,
    reference: str | Path | bool | None,
) -> tuple[Known | None, str]:  # fmt: skip
    """Return the outputs of the model file, or the reason why there are none.

    Raises an error only for a file that the user named; a file found by search that cannot be run is a reason.
    """
    if reference is False:
        return None, "was not requested"
    if interface.warm_up_runs or interface.state_bytes:
        return None, "is not comparable: the model keeps states over time, and samples are evaluated one by one"
    from tvm_ext.packages.model_file import model_file  # imports TVM, which no other use of a package needs

    named = None if reference is True else reference
    try:
        return _of_file(model_file(folder, report["model"], named), report, interface, arrays, port), ""
    except TvmExtError as error:
        if named is not None:
            raise
        return None, str(error)


def _of_file(
    file: Path, report: Mapping[str, Any], interface: Interface, arrays: Sample, port: Port
) -> Known:  # fmt: skip
    """Run the model file in its reference runtime on the same samples. Raises BadInput and the errors of `load`."""
    from tvm_ext.packages.model_file import loaded_again
    from tvm_ext.verification.reference_runtimes.ask import ask

    mod = loaded_again(file, report, interface)
    dtypes = {param.name: str(param.ty.dtype) for param in mod["main"].params}
    if unknown := [one.source for one in interface.inputs if one.source not in dtypes]:
        raise BadInput(f"{file.name}: has no input {unknown[0]!r}, which the package reads.")
    real = {one.source: _as_file_has_it(one, arrays[one.source], dtypes[one.source]) for one in interface.inputs}
    inputs = tuple(replace(one, dtype=dtypes[one.source], quantization=None) for one in interface.inputs)
    samples = batch_of(replace(interface, inputs=inputs), real).samples
    said = ask(mod, samples, [], quantized_here=False)
    stacked = np.stack([outputs[port.source] for outputs in said.outputs])
    return said.runtime, _rows(stacked, port, len(samples))


def _as_file_has_it(port: Port, array: np.ndarray, dtype: str) -> np.ndarray:
    """Return an input in the type of the model file: integers that this build quantized become real numbers."""
    if array.dtype.kind != "f" and np.dtype(dtype).kind == "f" and port.quantization is not None:
        return dequantized(port, array).astype(dtype)
    return array.astype(dtype) if array.dtype.kind == "f" == np.dtype(dtype).kind else array


def _reference_scores(
    known: Known, task: Task, targets: np.ndarray, predicted: np.ndarray, class_names: tuple[str, ...] | None
) -> ReferenceScores:
    runtime, rows = known
    scores: Scores = scores_of(task, targets, rows, class_names)
    same = float((rows.argmax(axis=1) == predicted.argmax(axis=1)).mean()) if task == "classification" else None
    return ReferenceScores(runtime=runtime, scores=scores, agreement=same)
