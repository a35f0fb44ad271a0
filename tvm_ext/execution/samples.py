"""Samples, which are arrays by the model's own names, and the results of their runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from codegen_c.program.interface import Interface, Port
from codegen_c.program.makespan import SharedRun
from tvm_ext.core.errors import BadInput, RunFailed

Sample = Mapping[str, np.ndarray]


def check_inputs(interface: Interface, inputs: Sample) -> list[np.ndarray]:
    """Return the arrays in the order of the interface, contiguous. Raises BadInput for a wrong name, shape or dtype."""
    if not isinstance(inputs, Mapping):
        raise BadInput(f"inputs are a {type(inputs).__name__}; give a dict of arrays by name.")
    check_names(interface, inputs)
    arrays: list[np.ndarray] = []
    for port in interface.inputs:
        array = array_of(port.source, inputs[port.source])
        if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
            raise BadInput(
                f"input {port.source!r} is {array.dtype}{list(array.shape)}; "
                f"{interface.model} reads {port.dtype}{list(port.shape)}.{_way_out(port, array)}"
            )
        arrays.append(np.asarray(array, order="C"))
    return arrays


def check_names(interface: Interface, inputs: Collection[str]) -> None:
    """Raise BadInput if an input is missing, or a name is not an input."""
    names = [port.source for port in interface.inputs]
    for name in inputs:
        if name not in names:
            near = get_close_matches(str(name), names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadInput(f"{name!r} is not an input of {interface.model}, which reads {', '.join(names)}.{hint}")
    for name in names:
        if name not in inputs:
            raise BadInput(f"input {name!r} is missing; {interface.model} reads {', '.join(names)}.")


def array_of(name: str, value: object) -> np.ndarray:
    """Return an input as an array. Raises BadInput."""
    try:
        return np.asarray(value)
    except ValueError:
        raise BadInput(f"input {name!r} is not an array: its rows differ in length; make them equal.") from None


def outputs_of(data: bytes, interface: Interface, num_samples: int, writer: str) -> tuple[dict[str, np.ndarray], ...]:
    """Return the raw outputs of all samples as arrays. writer: firmware's name, for errors. Raises RunFailed."""
    expected = num_samples * sum(port.num_bytes for port in interface.outputs)
    if len(data) != expected:
        raise RunFailed(
            f"{writer} wrote {len(data)} B of outputs, and {expected} B are expected; check that it belongs to this "
            "package."
        )
    samples: list[dict[str, np.ndarray]] = []
    offset = 0
    for _ in range(num_samples):
        sample = {}
        for port in interface.outputs:
            flat = np.frombuffer(data, port.dtype, port.num_elements, offset)
            sample[port.source] = port.taken_back(flat).copy()
            offset += port.num_bytes
        samples.append(sample)
    return tuple(samples)


def _way_out(port: Port, array: np.ndarray) -> str:
    """Return advice on an array of a wrong type or shape, as sentences; empty if no conversion is likely."""
    said = ""
    if array.shape != port.shape and array.size == port.num_elements:
        said = f" The number of elements is right: .reshape({list(port.shape)}) converts it."
    if array.dtype == np.dtype(port.dtype) or array.dtype.kind not in "biuf":
        return said
    if port.quantization is not None and array.dtype.kind == "f":
        scale, zero_point = np.float32(port.quantization.scale), port.quantization.zero_point
        return f"{said} The input is quantized: round(x / {scale!s}) + {zero_point}, clipped to {port.dtype}."
    return f'{said} .astype("{port.dtype}") converts it.'


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """Outputs of each sample, and measurements of a run on the first sample, after a warm-up run.

    stack_bytes: high-water mark of the stack of run(). instructions: executed instructions of the run, counted by QEMU,
    which are not cycles; None on a device, and if several processors share a run and could not be counted. cycles: of
    the processor, by the board's timer; None in QEMU, and if the timer wrapped. moved_bytes: bytes copied between
    memories in QEMU, by (from, to); None if the firmware does not count them. shared: measurements of each processor
    that shares the run. driver_calls: starts of accelerators and waits for them, counted in QEMU. said: text that a
    runner printed.
    """

    outputs: tuple[dict[str, np.ndarray], ...]
    stack_bytes: int
    instructions: int | None = None
    cycles: int | None = None
    moved_bytes: Mapping[tuple[str, str], int] | None = field(default_factory=dict[tuple[str, str], int])
    shared: SharedRun | None = None
    driver_calls: tuple[int, int] | None = None
    said: str = ""
