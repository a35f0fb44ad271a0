"""C spelling of a float kernel's arithmetic, on one float or on a vector of them."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.c_text.text import float_literal
from codegen_c.kernels.contract import Target
from codegen_c.operators.scalar import FUNCTIONS

VECTOR_FUNCTIONS = ("add", "subtract", "multiply", "maximum", "minimum", "half")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """`count` floats side by side: 1 is plain float, others are the types of the target's tvm_ext_f32x<count>.h.

    half: whether activations lie in memory as float16; they are widened as they are read, rounded as they are written.
    live: the first lanes, which alone are read and written; None: all.
    """

    count: int
    half: bool = False
    live: int | None = None

    @property
    def ctype(self) -> str:
        return "float" if self.count == 1 else f"tvm_ext_f32x{self.count}"

    @property
    def element(self) -> str:
        """C type of an activation's element."""
        return "uint16_t" if self.half else "float"

    @property
    def access_instructions(self) -> int:
        """Modelled instructions that read or write elements of activations."""
        return 2 if self.half else 1

    @property
    def includes(self) -> tuple[str, ...]:
        halves = ("tvm_ext_half.h", "tvm_ext_narrow.h", "tvm_ext_layer.h") if self.half else ()
        if self.count == 1:
            return halves
        kinds = ("", "halves_", "narrow_") if self.half else ("",)
        return (*(f"tvm_ext_{kind}f32x{self.count}.h" for kind in kinds), *halves)

    def read(self, array: str, index: str) -> str:
        """Expression: `count` elements of an activation from `index` on."""
        if not self.half:
            return self.load(array, index)
        if self.count == 1:
            return f"tvm_ext_of_half({array}[{index}])"
        return f"{self.ctype}_of_halves(&{array}[{index}])"

    def write(self, array: str, index: str, value: str) -> str:
        """Statement: elements of an activation from `index` on."""
        if not self.half:
            return self.store(array, index, value)
        if self.count == 1:
            return f"{array}[{index}] = tvm_ext_half({value});"
        return f"{self.ctype}_to_halves(&{array}[{index}], {value});"

    def load(self, array: str, index: str) -> str:
        """Expression: `count` floats of an array from `index` on."""
        if self.live is not None:
            return f"tvm_ext_load_live_f32x{self.count}(&{array}[{index}], {self.live})"
        return f"{array}[{index}]" if self.count == 1 else f"{self.ctype}_load(&{array}[{index}])"

    def store(self, array: str, index: str, value: str) -> str:
        """Statement: floats of an array from `index` on."""
        if self.live is not None:
            return f"tvm_ext_store_part_f32x{self.count}(&{array}[{index}], {self.live}, {value});"
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
