"""The contents of a loaded model: ports, operators, parameters, work."""

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
    """Facts about a model that no platform changes.

    inputs, outputs: name, dtype, shape, and scale and zero_point, None for real numbers. operators: how often each
    stands in the file. num_parameters, parameter_bytes: elements and bytes of its constants. macs: of one run.
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
    """The contents of a module as `load` makes it. Raises UnsupportedModel where an operator cannot be compiled."""
    interface = compile_module(mod, Platform.load("host"), BuildOptions(io="caller")).interface
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
