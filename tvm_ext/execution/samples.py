"""Samples: arrays under the model's own names, with the model's shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_c.program.interface import Interface
from tvm_ext.core.errors import BadInput

Sample = Mapping[str, np.ndarray]


def check_inputs(interface: Interface, inputs: Sample) -> list[np.ndarray]:
    """The arrays in the order of the interface, contiguous. Raises BadInput: name, shape or dtype is wrong."""
    names = [port.source for port in interface.inputs]
    for name in inputs:
        if name not in names:
            raise BadInput(f"{name!r} is not an input of {interface.model}: {', '.join(names)}.")
    arrays: list[np.ndarray] = []
    for port in interface.inputs:
        if port.source not in inputs:
            raise BadInput(f"input {port.source!r} is missing; {interface.model} reads {', '.join(names)}.")
        array = np.asarray(inputs[port.source])
        if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
            raise BadInput(
                f"input {port.source!r} is {array.dtype}{list(array.shape)}; "
                f"{interface.model} reads {port.dtype}{list(port.shape)}."
            )
        arrays.append(np.asarray(array, order="C"))
    return arrays
