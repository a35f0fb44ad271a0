"""Operations of plain C by kind, and the instructions that processors execute for them.

Fitted to executed instructions of TVM's definitions of 130 operators on a Cortex-M4 in QEMU, by GCC 12 with -O3, floats
by its FPU and by newlib's functions. `benchmarks/generic_costs.py` compares both: within a factor of 1.25 of executed
96 % of them with an FPU and 91 % without, within 2 all; 79 % and 95 % on a Cortex-M55, where GCC makes vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Work = Mapping[str, int]
"""Kind -> times. A kind is `load`, `store`, `turn` and `loop`, `branch`, `quotient` (by a constant), or a type and an
operation of it: `float arithmetic`, `integer divide`, `double exp`. `truth` is a comparison that is stored, `place` one
that an input holds, kept inside of a buffer, `limit` an extreme of a float and a number. Behind `saved ` stand those
that vectors of four lanes save, `remainder` is a loop over what they leave."""
VECTORS = "armv8.1-m"
"""Instruction sets, by how they begin, for which GCC makes vectors of loops, and whose FPU has doubles."""
SAVED, LANES = "saved ", 4

_INTEGERS = MappingProxyType(
    {
        "load": 1.0,
        "store": 1.0,
        "turn": 2.8,
        "loop": 10.0,
        "remainder": 0.0,
        "branch": 1.0,
        "truth": 2.8,
        "quotient": 2.5,
        "integer arithmetic": 0.9,
        "integer compare": 0.4,
        "integer choice": 0.5,
        "integer extreme": 3.2,
        "integer place": 2.5,
        "integer shift": 5.5,
        "integer divide": 7.0,
        "long arithmetic": 1.5,
        "long compare": 2.0,
        "long choice": 1.0,
        "long extreme": 10.0,
        "long place": 4.2,
        "long shift": 12.0,
        "long divide": 60.0,
    }
)
_COUNTED = MappingProxyType({"turn": 1.5, "integer extreme": 1.5, "remainder": 10.0})
"""Cores with such vectors count turns of loops themselves, and their loads step pointers."""
_BY_FPU = MappingProxyType(
    {
        "arithmetic": 0.9,
        "product": 0.9,
        "compare": 2.4,
        "choice": 0.4,
        "limit": 3.7,
        "extreme": 4.0,
        "cast": 1.5,
        "truncate": 10.0,
        "divide": 1.0,
        "fabs": 1.0,
        "sqrt": 9.0,
        "floor": 17.0,
        "ceil": 20.0,
        "trunc": 12.0,
        "rint": 31.0,
        "fmod": 32.0,
        "exp": 65.0,
        "log": 54.0,
        "pow": 141.0,
        "sin": 41.0,
        "cos": 47.0,
        "erf": 41.0,
        "acos": 60.0,
        "asin": 67.0,
        "atan": 55.0,
    }
)
_BY_LIBRARY = MappingProxyType(
    {
        "arithmetic": 49.0,
        "product": 32.0,
        "compare": 31.0,
        "choice": 0.5,
        "limit": 35.0,
        "extreme": 37.0,
        "cast": 24.0,
        "truncate": 60.0,
        "divide": 51.0,
        "fabs": 1.0,
        "sqrt": 208.0,
        "floor": 65.0,
        "ceil": 75.0,
        "trunc": 10.0,
        "rint": 119.0,
        "fmod": 29.0,
        "exp": 1060.0,
        "log": 700.0,
        "pow": 2080.0,
        "sin": 710.0,
        "cos": 850.0,
        "erf": 1070.0,
        "acos": 1470.0,
        "asin": 1600.0,
        "atan": 1270.0,
    }
)
_BY_WIDE_FPU = MappingProxyType({"exp": 35.0, "log": 38.0, "pow": 64.0, "sin": 27.0, "cos": 28.0})
"""newlib computes these functions of floats in doubles where an FPU has them, in fewer instructions."""
_ROUNDED_BY_FPU = MappingProxyType({"floor": 1.5, "ceil": 1.5, "trunc": 1.5, "rint": 1.5, "truncate": 6.0})
"""FPUs from FPv5 on have instructions that round."""
_OTHER_FUNCTION_BY_FPU, _OTHER_FUNCTION_BY_LIBRARY = 97.0, 1800.0
_DOUBLE_BY_LIBRARY = 2.0
"""Instructions of a double's function by those of a float's."""


def instructions_of(work: Work, *, fpu: str, isa: str) -> int:
    """Instructions that a processor executes, modelled. fpu: `none`, `single` or `double`; isa as platforms say it."""
    has_rounding, has_vectors = fpu == "double" or not isa.startswith("armv7"), isa.startswith(VECTORS)
    integers = {**_INTEGERS, **(_COUNTED if has_vectors else {})}
    has_doubles = fpu == "double" or has_vectors
    by_fpu = {**_BY_FPU, **(_ROUNDED_BY_FPU if has_rounding else {}), **(_BY_WIDE_FPU if has_doubles else {})}
    total = 0.0
    for kind, times in work.items():
        if not kind.startswith(SAVED):
            saved = work.get(f"{SAVED}{kind}", 0) if has_vectors else 0
            total += (times - saved) * _each(kind, fpu, integers, by_fpu)
    return round(total)


def _each(kind: str, fpu: str, integers: Mapping[str, float], by_fpu: Mapping[str, float]) -> float:
    if kind in integers:
        return integers[kind]
    family, operation = kind.split(" ")
    if family not in ("float", "double"):
        return integers["integer divide"]
    if fpu == "double" or (fpu == "single" and family == "float"):
        return by_fpu.get(operation, _OTHER_FUNCTION_BY_FPU)
    cost = _BY_LIBRARY.get(operation, _OTHER_FUNCTION_BY_LIBRARY)
    return cost * (_DOUBLE_BY_LIBRARY if family == "double" else 1.0)
