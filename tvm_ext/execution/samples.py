"""Samples, which are arrays under the model's own names, and the results of running them."""

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
    """The arrays in the order of the interface, contiguous. Raises BadInput: name, shape or dtype is wrong."""
    if not isinstance(inputs, Mapping):
        raise BadInput(f"inputs are a {type(inputs).__name__}; a dict of arrays by name is needed.")
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
    """Raises BadInput where an input is missing, or a name is none."""
    names = [port.source for port in interface.inputs]
    for name in inputs:
        if name not in names:
            near = get_close_matches(str(name), names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadInput(f"{name!r} is not an input of {interface.model}: {', '.join(names)}.{hint}")
    for name in names:
        if name not in inputs:
            raise BadInput(f"input {name!r} is missing; {interface.model} reads {', '.join(names)}.")


def array_of(name: str, value: object) -> np.ndarray:
    """An input as an array. Raises BadInput."""
    try:
        return np.asarray(value)
    except ValueError:
        raise BadInput(f"input {name!r} is no array: its rows differ in length.") from None


def outputs_of(data: bytes, interface: Interface, num_samples: int, writer: str) -> tuple[dict[str, np.ndarray], ...]:
    """Raw outputs of all samples as arrays. writer: for errors, the firmware's name. Raises RunFailed."""
    expected = num_samples * sum(port.num_bytes for port in interface.outputs)
    if len(data) != expected:
        raise RunFailed(f"{writer} wrote {len(data)} B of outputs; {expected} B were due. Is it of this package?")
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
    """Advice on an array of another type or shape, as sentences; empty where it cannot be guessed."""
    said = ""
    if array.shape != port.shape and array.size == port.num_elements:
        said = f" It has as many elements: .reshape({list(port.shape)})."
    if array.dtype == np.dtype(port.dtype) or array.dtype.kind not in "biuf":
        return said
    if port.quantization is not None and array.dtype.kind == "f":
        scale, zero_point = np.float32(port.quantization.scale), port.quantization.zero_point
        return f"{said} It is quantized: round(x / {scale!s}) + {zero_point}, cut off to {port.dtype}."
    return f'{said} .astype("{port.dtype}") converts it.'


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """Outputs per sample, and figures of one run on the first sample, after a warm-up.

    stack_bytes: high-water mark below the caller of run(). instructions: executed, from begin to end, counted by QEMU;
    None on a device, and where several processors share a run and nothing counted them. Instructions are not cycles.
    cycles: of the processor, by the board's timer; None in QEMU, and where the timer wrapped. moved_bytes: counted in
    QEMU, for each pair of memories (from, to) between which any went. shared: figures of each processor of several.
    driver_calls: counted in QEMU, starts of accelerators and waits for them. said: what a runner printed.
    """

    outputs: tuple[dict[str, np.ndarray], ...]
    stack_bytes: int
    instructions: int | None = None
    cycles: int | None = None
    moved_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    shared: SharedRun | None = None
    driver_calls: tuple[int, int] | None = None
    said: str = ""
