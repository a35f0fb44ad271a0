"""Contents of a loaded model: ports, operators, parameters and multiply-accumulates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from codegen_c.program.interface import Port
from relay_passes.dataflow import array_of, bindings, operands
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import KeptStates, ModelOrigin
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.verification.float64_module import multiply_accumulates


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Properties of a model that are the same on every platform.

    inputs, outputs: name, dtype and shape of each port, and scale and zero_point, which are None for real numbers.
    operators: the number of times that each operator occurs in the file.
    num_parameters, parameter_bytes: elements and bytes of the model's constants.
    macs: multiply-accumulates of one run.
    num_states: the number of tensors that the model keeps from run to run.
    """

    inputs: tuple[Mapping[str, Any], ...]
    outputs: tuple[Mapping[str, Any], ...]
    operators: Mapping[str, int]
    num_parameters: int
    parameter_bytes: int
    macs: int
    num_states: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def contents_of(mod: tvm.IRModule) -> Contents:
    """Return the contents of a module that `load` returned. Raises UnsupportedModel for an operator without C code."""
    interface = compile_module(mod, Platform.load("host"), BuildOptions(io="caller")).interface
    # A constant that several operators read is one key of this dict, so that it counts once.
    every = [operand for binding in bindings(mod["main"]) for operand in operands(binding.value)]
    arrays = {operand: array for operand in every if (array := array_of(operand)) is not None}
    return Contents(
        inputs=tuple(_port(port) for port in interface.inputs),
        outputs=tuple(_port(port) for port in interface.outputs),
        operators=dict(Counter(node.operator for node in ModelOrigin.read(mod).nodes)),
        num_parameters=sum(array.size for array in arrays.values()),
        parameter_bytes=sum(array.nbytes for array in arrays.values()),
        macs=multiply_accumulates(mod),
        num_states=len(KeptStates.read(mod).states),
    )


def _port(port: Port) -> dict[str, Any]:
    scale, zero_point = (port.quantization.scale, port.quantization.zero_point) if port.quantization else (None, None)
    shape = list(port.shape)
    return {"name": port.source, "dtype": port.dtype, "shape": shape, "scale": scale, "zero_point": zero_point}
