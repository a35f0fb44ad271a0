"""Softmax kernels of targets: vectors one after the other, to the bytes of the portable kernel, whole or by rows.

A probability's high product is rounded at once where no product of its vector can be a tie, which the trailing zeros
of the vector's factor tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import CFunction, Implementation, Parameter, Target
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.vectors_in_turn import in_turn
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.kernels.softmax.masked import SoftmaxLoops
from codegen_c.operators.kinds import Array, QSoftmax

LEAST_SHIFT = 33


def has_several_vectors(operator: QSoftmax, target: Target) -> bool:
    """one vector is left to the portable kernel, whose code is smaller"""
    return operator.output.num_elements > operator.output.shape[-1]


def high_product_fits(operator: QSoftmax, target: Target) -> bool:
    """a step of the output must be at most 1/64 and more than 2^-27, so that a high product holds its results"""
    return LEAST_SHIFT <= qsoftmax.reciprocal(operator)[1] <= LEAST_SHIFT + 20


CONSTRAINTS = (*qsoftmax.KERNEL.constraints, has_several_vectors, high_product_fits)


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxVectors:
    """A target's loops over vectors, `<function>(&layer, input, output, exponential)` on a `tvm_ext_softmax_layer`.

    ctype: of the exponentials.
    """

    kernel: str
    function: str
    includes: tuple[str, ...]
    ctype: str
    element_instructions: int
    vector_instructions: int

    def implement(self, operator: QSoftmax, exponentials: Array) -> Implementation:
        """The kernel. exponentials: as its loops read them."""

        def vectors(count: int) -> Implementation:
            return self._of(operator, exponentials, count)

        whole = vectors(operator.output.num_elements // operator.output.shape[-1])
        return replace(whole, in_rows=in_turn(operator, vectors))

    def layer_of(self, operator: QSoftmax, count: int) -> list[str]:
        """Lines of a `tvm_ext_softmax_layer` of so many vectors."""
        source, output = operator.inputs[0], operator.output
        length, limits = output.shape[-1], np.iinfo(output.dtype)
        steps, shift = qsoftmax.reciprocal(operator)
        members: dict[str, Value] = {
            "vectors": count, "length": length, "is_unsigned": source.dtype == "uint8", "steps": f"INT64_C({steps})",
            "shift": shift, "zero_point": quantization(output).zero_point, "low": int(limits.min),
            "high": int(limits.max),
        }  # fmt: skip
        return structure("tvm_ext_softmax_layer", "layer", members)

    def masked(self) -> SoftmaxLoops:
        """The loops as masked.py takes them, of a layer's vectors one by one."""
        return SoftmaxLoops(
            kernel=self.kernel.replace("softmax", "softmax_masked"), function=self.function, includes=self.headers,
            ctype=self.ctype, layer="tvm_ext_softmax_layer", length="length",
            lines=lambda operator: self.layer_of(operator, 1), element_instructions=self.element_instructions,
            vector_instructions=self.vector_instructions,
        )  # fmt: skip

    @property
    def headers(self) -> tuple[str, ...]:
        return (*self.includes, "tvm_ext_softmax_layer.h")

    def _of(self, operator: QSoftmax, exponentials: Array, count: int) -> Implementation:
        source, output = operator.inputs[0], operator.output
        return Implementation(
            kernel=self.kernel,
            function=CFunction(
                parameters=(
                    Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                    Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                    Parameter(name="exponential", ctype=self.ctype, role="constant"),
                ),
                body="\n".join(
                    [*self.layer_of(operator, count), f"{self.function}(&layer, input, output, exponential);"]
                ),
                includes=self.headers,
            ),
            reference=lambda inputs: qsoftmax.reference(operator, inputs),
            constants=(("exponential", exponentials),),
            instructions=count * (output.shape[-1] * self.element_instructions + self.vector_instructions),
            accumulation="exact",
            in_place=(0,),
            exact=True,
        )
