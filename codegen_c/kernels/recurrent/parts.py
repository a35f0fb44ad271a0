"""Kernels that another kernel calls inside its loop over time, as functions of the same C text.

A recurrent layer multiplies matrices and computes gates in every step. Its parts are operators of their own, computed
by whichever kernels of the target are cheapest, so a target that has fast dense kernels has fast recurrent layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.kernels.contract import Implementation, Parameter, Target
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.layer import apart
from codegen_c.operators.kinds import Array, Operator

BIAS = "bias"
"""Name of the constant of a float dense kernel with which its sums start, one float for each output channel."""


def have_kernels(operators: Sequence[Operator], target: Target) -> bool:
    """Return True if the target has a kernel for each operator."""
    return all(isinstance(select(operator, target), Implementation) for operator in operators)


def has_bias(layer: Operator, target: Target) -> bool:
    """Return True if the kernel of a dense layer starts each sum at a float of its constant `BIAS`."""
    made = select(layer, target)
    held = dict(made.constants).get(BIAS) if isinstance(made, Implementation) else None
    return held is not None and held.dtype == np.float32 and held.shape == (layer.output.shape[-1],)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepPart:
    """A kernel that computes one operator of a step.

    prefix: begins the names of its constants and functions. starts: True for a dense layer whose sums start at floats
    that each call names, in place of a constant bias.
    """

    made: Implementation
    prefix: str
    starts: bool = False

    @classmethod
    def of(cls, operator: Operator, target: Target, prefix: str) -> Self:
        """Return the cheapest kernel of an operator for which `have_kernels` is True."""
        made = select(operator, target)
        assert isinstance(made, Implementation), "constraints have selected one"
        return cls(made=made, prefix=prefix)

    def constants(self) -> list[tuple[str, Array]]:
        return [(f"{self.prefix}_{name}", array) for name, array in self.made.constants if not self._is_start(name)]

    def parameters(self) -> list[Parameter]:
        """Return the constants among the parameters, under names of their own."""
        return [
            replace(parameter, name=f"{self.prefix}_{parameter.name}")
            for parameter in self.made.function.parameters
            if parameter.role == "constant" and not self._is_start(parameter.name)
        ]

    def _is_start(self, name: str) -> bool:
        return self.starts and name == BIAS

    def definition(self) -> str:
        """Return the kernel as the function `$_<prefix>_step`, with the definitions that it needs."""
        function = self.made.function
        text = "\n".join([
            function.helpers,
            apart("$_step", [p.declaration() for p in function.parameters], function.body.splitlines()),
        ])  # fmt: skip
        return text.replace("$_", f"$_{self.prefix}_")

    def call(self, sources: Sequence[str], target: str, scratch: str, *, start: str = "") -> str:
        """Return the call that computes `target` from `sources`, all of them C expressions of pointers.

        start: the floats at which the sums start, if `starts`.
        """
        inputs, rows = iter(sources), self.made.spatial.output_rows if self.made.spatial else 0
        row_range = {"row_begin": "0", "row_end": str(rows)}

        def argument(parameter: Parameter) -> str:
            if parameter.role == "input":
                return next(inputs)
            if self._is_start(parameter.name):
                return start
            others = {"output": target, "scratch": scratch, "row": row_range.get(parameter.name, "")}
            return others.get(parameter.role, f"{self.prefix}_{parameter.name}")

        return f"$_{self.prefix}_step({', '.join(map(argument, self.made.function.parameters))});"
