"""Conversion of the inputs of a run: an array, a dict or a sequence, with real numbers or integers, to samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from codegen_c.operators.kinds import Rounding
from codegen_c.program.interface import Interface, Port
from tvm_ext.core.errors import BadInput
from tvm_ext.execution.samples import Sample, array_of, check_inputs, check_names

Inputs = ArrayLike | Mapping[str, ArrayLike] | Sequence[Mapping[str, ArrayLike]]
"""Inputs of a run or of several runs: an array, arrays by name, arrays in the order of the inputs, or samples."""

Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Samples in order. is_batch: True if the caller gave a batch, even of one sample; the outputs are then stacked.

    is_leading: True if the batch axis takes the place of the model's own first axis, of extent 1.
    is_real: True if real inputs were quantized, so that the outputs are dequantized.
    """

    samples: tuple[Sample, ...]
    is_batch: bool
    is_leading: bool
    is_real: bool


def run_batch(
    interface: Interface,
    inputs: Inputs,
    run: Callable[[Sequence[Sample]], Sequence[Outputs]],
    *,
    quantize: bool = True,
) -> dict[str, np.ndarray]:
    """Return the outputs of a sample by name, or the stacked outputs of a batch.

    run: returns the outputs of samples in order. quantize: True to quantize floats for an integer input by its scale,
    and in this case to dequantize the outputs. Raises BadInput, and the errors of `run`.
    """
    batch = batch_of(interface, inputs, quantize=quantize)
    runs = run(batch.samples)
    return {port.source: _joined(port, [one[port.source] for one in runs], batch) for port in interface.outputs}


def batch_of(interface: Interface, inputs: Inputs, *, quantize: bool = True) -> Batch:
    """Return the inputs of a run as samples of the model's shapes and types. Raises BadInput.

    An array is a batch if it has an additional first axis, or if its first extent is not 1 where the model's is.
    """
    arrays = arrays_of(interface, inputs)
    check_names(interface, arrays)
    ports = {port.source: port for port in interface.inputs}
    real = {n for n, one in arrays.items() if quantize and ports[n].quantization and one.dtype.kind == "f"}
    arrays = {n: quantized(ports[n], one, interface.rounding) if n in real else one for n, one in arrays.items()}
    counts = {name: _count(ports[name], array) for name, array in arrays.items()}
    if not counts or None in counts.values():
        check_inputs(interface, arrays)
        return Batch(samples=(arrays,), is_batch=False, is_leading=False, is_real=bool(real))
    return _split(interface, arrays, cast("Mapping[str, int]", counts), is_real=bool(real))


def _split(interface: Interface, arrays: Sample, counts: Mapping[str, int], *, is_real: bool) -> Batch:
    """Return the batch of arrays that hold `counts` samples. Raises BadInput if the counts differ or are 0."""
    if len({*counts.values()}) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise BadInput(f"inputs: the numbers of samples differ ({listed}); give the same number for each input.")
    count = next(iter(counts.values()))
    if not count:
        raise BadInput(f"inputs: the batch for {interface.model} holds no samples; give at least one.")
    ports = {port.source: port for port in interface.inputs}
    samples = tuple(
        {name: array[index].reshape(ports[name].shape) for name, array in arrays.items()} for index in range(count)
    )
    for sample in samples[:1]:  # all samples have the same shapes and types
        check_inputs(interface, sample)
    is_leading = all(array.ndim == len(ports[name].shape) for name, array in arrays.items())
    return Batch(samples=samples, is_batch=True, is_leading=is_leading, is_real=is_real)


def arrays_of(interface: Interface, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the inputs of a run as arrays by name; a list of samples is stacked on a first axis. Raises BadInput."""
    if isinstance(inputs, list | tuple) and inputs and all(isinstance(one, Mapping) for one in inputs):
        return _stacked(interface, cast("Sequence[Mapping[str, object]]", inputs))
    names = [port.source for port in interface.inputs]
    reads = f"{interface.model} reads {', '.join(names)}"
    if isinstance(inputs, Mapping):
        return {name: array_of(name, value) for name, value in cast("Mapping[str, object]", inputs).items()}
    if isinstance(inputs, list | tuple):
        given = cast("Sequence[object]", inputs)
        if len(given) != len(names):
            raise BadInput(
                f"inputs: the {type(inputs).__name__} holds {len(given)} values and needs one for each input; {reads}. "
                "Stack samples of one input by numpy.stack."
            )
        return {name: array_of(name, value) for name, value in zip(names, given, strict=True)}
    if not hasattr(inputs, "__array__"):
        raise BadInput(f"inputs are a {type(inputs).__name__}; give an array, or a dict of arrays by name.")
    if len(names) != 1:
        raise BadInput(f"inputs: a single array is given; {reads}. Give a dict, or a sequence in this order.")
    return {names[0]: array_of(names[0], inputs)}


def _stacked(interface: Interface, samples: Sequence[Mapping[str, object]]) -> dict[str, np.ndarray]:
    """Return the samples stacked on a first axis, for each input. Raises BadInput."""
    for sample in samples:
        check_names(interface, [*sample])
    try:
        return {port.source: np.stack([np.asarray(one[port.source]) for one in samples]) for port in interface.inputs}
    except ValueError:
        raise BadInput(
            "inputs: the samples of the list differ in shape; give arrays of the same shape for each input."
        ) from None


def _count(port: Port, array: np.ndarray) -> int | None:
    """Return the number of samples in an array; None if the array is a single sample, or has no valid batch shape."""
    if array.ndim == len(port.shape) + 1 and array.shape[1:] == port.shape:
        return len(array)
    if port.shape[:1] == (1,) and array.ndim == len(port.shape) and array.shape[1:] == port.shape[1:]:
        return len(array) if len(array) != 1 else None
    return None


def _joined(port: Port, arrays: Sequence[np.ndarray], batch: Batch) -> np.ndarray:
    """Join an output of all runs. A first axis of extent 1 becomes the batch axis if it is so in the inputs."""
    is_real = batch.is_real and port.quantization is not None
    found = [dequantized(port, one) for one in arrays] if is_real else arrays
    if not batch.is_batch:
        return found[0]
    return np.concatenate(found) if batch.is_leading and port.shape[:1] == (1,) else np.stack(found)


def quantized(port: Port, real: np.ndarray, rounding: Rounding) -> np.ndarray:
    """Quantize real numbers for a port: scale in float32, round by the rule of the model's format, saturate.

    NaN becomes the zero point, as in `NAME_quantize_PORT` of the C header.
    """
    assert port.quantization is not None, "the port is quantized"
    with np.errstate(over="ignore", invalid="ignore"):
        steps = (np.asarray(real, np.float32) / np.float32(port.quantization.scale)).astype(np.float64)
    nearest = np.rint(steps) if rounding == "onnx" else np.copysign(np.floor(np.abs(steps) + 0.5), steps)
    limits = np.iinfo(port.dtype)
    shifted = np.nan_to_num(nearest, nan=0.0) + port.quantization.zero_point
    return np.clip(shifted, limits.min, limits.max).astype(port.dtype)


def dequantized(port: Port, integers: np.ndarray) -> np.ndarray:
    """Return the real numbers, float32, that the integers of a quantized port represent."""
    assert port.quantization is not None, "the port is quantized"
    steps = (integers.astype(np.int64) - port.quantization.zero_point).astype(np.float32)
    return np.float32(port.quantization.scale) * steps
