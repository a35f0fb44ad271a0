"""C spelling of a float kernel's arithmetic, on one float or on a vector of them."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.c_text.text import float_literal
from codegen_c.kernels.contract import Target
from codegen_c.operators.scalar import FUNCTIONS

VECTOR_FUNCTIONS = ("add", "subtract", "multiply", "maximum", "minimum")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """`count` floats side by side: 1 is plain float, others are the types of the target's tvm_ext_f32x<count>.h."""

    count: int

    @property
    def ctype(self) -> str:
        return "float" if self.count == 1 else f"tvm_ext_f32x{self.count}"

    @property
    def includes(self) -> tuple[str, ...]:
        return () if self.count == 1 else (f"tvm_ext_f32x{self.count}.h",)

    def load(self, array: str, index: str) -> str:
        """Expression: `count` elements of an array from `index` on."""
        return f"{array}[{index}]" if self.count == 1 else f"{self.ctype}_load(&{array}[{index}])"

    def store(self, array: str, index: str, value: str) -> str:
        """Statement."""
        if self.count == 1:
            return f"{array}[{index}] = {value};"
        return f"{self.ctype}_store(&{array}[{index}], {value});"

    def number(self, value: float) -> str:
        """Expression: one number in all lanes."""
        literal = float_literal(value)
        return literal if self.count == 1 else f"{self.ctype}_splat({literal})"

    def fma(self, a: str, b: str, c: str) -> str:
        """Expression: a * b + c, lane by lane."""
        return f"TVM_EXT_FMA({a}, {b}, {c})" if self.count == 1 else f"{self.ctype}_fma({a}, {b}, {c})"

    def fma_n(self, a: str, b: str, c: str) -> str:
        """Expression: a * b + c where a is one float for all lanes."""
        return f"TVM_EXT_FMA({a}, {b}, {c})" if self.count == 1 else f"{self.ctype}_fma_n({a}, {b}, {c})"

    def call(self, function: str, operands: list[str]) -> str:
        """Expression: a scalar function; of vectors only those in VECTOR_FUNCTIONS."""
        if self.count == 1:
            return FUNCTIONS[function].c.format(*operands)
        return f"{self.ctype}_{function}({', '.join(operands)})"


SCALAR = Lanes(count=1)


def native_lanes(target: Target) -> Lanes:
    """The widest vector of floats the processor has."""
    return Lanes(count=target.instruction_set.floats.lanes)
