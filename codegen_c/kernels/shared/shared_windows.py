"""Several layers in one call, which bring the windows of their only input into scratch once.

    for each group of pixels:   windows -> scratch
                                scratch -> all channels of the first layer
                                scratch -> all channels of the second layer ...

Each layer keeps its own packed weights, factors, zero point and limits, and its own output tensor, so no bit changes
and no slice has to be copied. A kernel takes part if it describes its `SharedWindows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import (
    Array,
    CFunction,
    Implementation,
    Parameter,
    Passes,
    SharedWindows,
    StoredRows,
)
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.operators.kinds import QConv2d

JOIN_INSTRUCTIONS = 10
"""Modelled instructions of a group of pixels in one layer: the call of its part, and the addresses of its pixels."""


def has_whole_image(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if pixels can be counted through all rows: of a single image that is stored whole."""
    in_part = any(stored.inputs) or stored.output or stored.at_once or stored.row_pitch
    return operator.output.shape[0] == 1 and not in_part


def joined(layers: Sequence[Implementation]) -> Implementation | None:
    """Return one implementation of layers that read the same windows, with one output for each.

    None if a layer does not describe its windows, or if they differ.
    """
    windows = [layer.windows for layer in layers if layer.windows is not None]
    if len(windows) < len(layers) or len({one.form for one in windows}) > 1:
        return None
    pairs = enumerate(zip(layers, windows, strict=True))
    first, parts = windows[0], [_Part(layer, one, index) for index, (layer, one) in pairs]
    groups = -(-first.pixels // first.at_once)

    def reference(inputs: list[Array]) -> list[Array]:
        return [result for layer in layers for result in layer.reference(inputs)]

    return Implementation(
        kernel=layers[0].kernel,
        function=_function(layers[0], first, parts),
        reference=reference,
        constants=tuple(constant for layer in layers for constant in layer.constants),
        scratch_bytes=max(layer.scratch_bytes for layer in layers),
        macs=sum(layer.macs for layer in layers),
        instructions=first.fill_instructions
        + sum(one.compute_instructions + groups * JOIN_INSTRUCTIONS for one in windows),
        passes=_passes(layers),
        accumulation=layers[0].accumulation,
        exact=all(layer.exact for layer in layers),
        grows_weights=any(layer.grows_weights for layer in layers),
    )


class _Part:
    """A layer among several as C: a function of its own, and the names of its operands in the function of all."""

    def __init__(self, layer: Implementation, windows: SharedWindows, index: int) -> None:
        self.windows, self.index = windows, index
        self.parameters = [one for one in layer.function.parameters if one.role in ("output", "constant")]
        self.includes = layer.function.includes

    @property
    def own(self) -> list[Parameter]:
        """The parameters of the layer, by the names that they have in the function of all layers."""
        ending = f"_{self.index}" if self.index else ""
        return [replace(one, name=f"{one.name}{ending}") for one in self.parameters]

    def named(self, text: str) -> str:
        """Return text with names of the layer's own: `$_layer` of the second layer is `$_beside1_layer`."""
        return text.replace("$_", f"$_beside{self.index}_") if self.index else text

    def definition(self) -> str:
        """Return the definitions of the layer, and its function for a group of pixels."""
        declared = [*(one.declaration() for one in self.parameters), "int32_t first", f"{SCRATCH.declaration()}"]
        head = "static inline void $_part(\n" + block(",\n".join(declared)) + ")"
        filling = "" if self.index else self.windows.fill_definitions
        definitions = "\n".join(text for text in (self.windows.definitions, filling) if text)
        return self.named(f"{definitions}\n{head}\n{{\n{block(list(self.windows.compute))}\n}}\n")

    def call(self) -> str:
        """Return the call for a group of pixels."""
        return self.named("$_part(") + ", ".join([*(one.name for one in self.own), "first", SCRATCH.name]) + ");"


def _function(layer: Implementation, windows: SharedWindows, parts: Sequence[_Part]) -> CFunction:
    own = [one for part in parts for one in part.own]
    taken = [one for one in layer.function.parameters if one.role == "input"]
    late = [part for part in parts if part.windows.regroup]
    group = [
        *windows.fill,
        *(part.call() for part in parts if part not in late),
        *(late[0].windows.regroup if late else ()),
        *(part.call() for part in late),
    ]
    if windows.pixels <= windows.at_once:
        lines = ["const int32_t first = 0;", *group]
    else:
        loop = f"for (int32_t m = 0; m < {windows.pixels}; m += {windows.at_once}) {{"
        lines = [loop, block([f"const int32_t first = {windows.first};", *group]), "}"]
    return CFunction(
        parameters=(
            *taken,
            *(one for one in own if one.role == "output"),
            *(one for one in own if one.role == "constant"),
            SCRATCH,
        ),
        body="\n".join(lines),
        helpers="\n".join(part.definition() for part in parts),
        includes=tuple(dict.fromkeys(name for part in parts for name in (*part.includes, *part.windows.includes))),
    )


def _passes(layers: Sequence[Implementation]) -> Passes:
    """Return the traffic: the input is read as often as by one layer, scratch and constants as by all of them."""
    constants = sum(layer.constant_bytes for layer in layers)
    read = sum(layer.passes.constants * layer.constant_bytes for layer in layers)
    return Passes(
        constants=max(1.0, read / max(1, constants)),
        input=max(layer.passes.input for layer in layers),
        scratch=sum(layer.passes.scratch for layer in layers),
    )
