"""Operations of plain C by kind, and the instructions that processors execute for them.

Fitted to the executed instructions of TVM's definitions of 130 operators in QEMU, by GCC 12 with -O3: on a Cortex-M4,
with floats by its FPU and by newlib's functions, on a Cortex-M55, for which GCC vectorizes, and on a Cortex-M0+. 98 %,
98 %, 96 % and 92 % of them are within a factor of 1.25 of the executed instructions, and all within 2
(`benchmarks/generic_costs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Work = Mapping[str, int]
"""Kind -> number of operations. A kind is `load`, `store`, `turn` (an iteration) and `loop`, `branch`, `quotient`
(by a constant), or a type and an operation on it: `float arithmetic`, `integer divide`, `double exp`. `truth` is
a stored comparison, `place` an index from an input that is clamped to a buffer, `limit` an extreme of a float and
a number, and `narrow` one float of four that are converted to small integers together. A `tested turn` is an
iteration with calls or branches. The prefix `saved ` marks operations that vectors of four lanes save;
`remainder` is a loop over the elements that they leave, and `pointer` a load through a pointer that no register
can hold."""
VECTORS = "armv8.1-m"
"""Instruction sets, by prefix, for which GCC vectorizes loops, and whose FPU supports doubles."""
SMALL = ("armv6-m", "armv8-m.base")
"""Instruction sets, by prefix, without long products, whose divisions are slow."""
SAVED, LANES = "saved ", 4

_INTEGERS = MappingProxyType(
    {
        "load": 1.0,
        "store": 1.0,
        "turn": 2.8,
        "tested turn": 2.8,
        "loop": 10.0,
        "remainder": 0.0,
        "pointer": 0.0,
        "branch": 1.0,
        "truth": 2.8,
        "quotient": 2.5,
        "integer arithmetic": 0.9,
        "integer compare": 0.4,
        "integer choice": 0.5,
        "integer extreme": 3.2,
        "integer place": 2.5,
        "integer shift": 4.5,
        "integer divide": 9.0,
        "long arithmetic": 1.5,
        "long compare": 2.0,
        "long choice": 1.0,
        "long extreme": 10.0,
        "long place": 4.2,
        "long shift": 12.0,
        "long divide": 60.0,
    }
)
_COUNTED = MappingProxyType(
    {"turn": 1.5, "integer extreme": 1.5, "integer shift": 4.0, "remainder": 10.0, "pointer": 3.6}
)
"""Cores with such vectors have hardware loops, and their loads increment pointers."""
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
        "narrow": 5.0,
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
        "cosh": 88.0,
        "erf": 41.0,
        "acos": 60.0,
        "asin": 67.0,
        "atan": 55.0,
        "other": 97.0,
    }
)
_BY_LIBRARY = MappingProxyType(
    {
        "arithmetic": 49.0,
        "product": 32.0,
        "compare": 35.0,
        "choice": 0.5,
        "limit": 35.0,
        "extreme": 56.0,
        "cast": 24.0,
        "truncate": 60.0,
        "narrow": 12.0,
        "divide": 130.0,
        "fabs": 1.0,
        "sqrt": 190.0,
        "floor": 65.0,
        "ceil": 75.0,
        "trunc": 10.0,
        "rint": 119.0,
        "fmod": 29.0,
        "exp": 1060.0,
        "log": 750.0,
        "pow": 2080.0,
        "sin": 710.0,
        "cos": 850.0,
        "cosh": 1320.0,
        "erf": 1070.0,
        "acos": 1470.0,
        "asin": 1600.0,
        "atan": 1270.0,
        "other": 1800.0,
    }
)
_BY_SMALL_LIBRARY = MappingProxyType(
    {
        "arithmetic": 67.0,
        "product": 119.0,
        "compare": 33.0,
        "cast": 57.5,
        "narrow": 20.0,
        "divide": 350.0,
        "sqrt": 200.0,
        "floor": 118.0,
        "ceil": 118.0,
        "rint": 163.0,
        "exp": 2050.0,
        "log": 1500.0,
        "pow": 4300.0,
        "sin": 1630.0,
        "cos": 1940.0,
        "cosh": 2900.0,
        "erf": 2530.0,
        "acos": 3300.0,
        "asin": 3500.0,
        "atan": 2900.0,
        "other": 3900.0,
    }
)
"""For processors without an instruction for products of 32 by 32 bits in 64."""
_WITHOUT_DIVISION = MappingProxyType({"integer divide": 50.0})
_BY_WIDE_FPU = MappingProxyType({"exp": 35.0, "log": 38.0, "pow": 64.0, "sin": 27.0, "cos": 28.0, "cosh": 76.0})
"""newlib computes these functions of floats in doubles if the FPU supports these, in fewer instructions."""
_ROUNDED_BY_FPU = MappingProxyType({"floor": 1.5, "ceil": 1.5, "trunc": 1.5, "rint": 1.5, "truncate": 6.0})
"""FPUs from FPv5 on have instructions that round."""
_DOUBLE_BY_LIBRARY = 2.0
"""Instructions of a double's function, as a multiple of those of a float's."""


def instructions_of(work: Work, *, fpu: str, isa: str) -> int:
    """Return the modelled instructions that a processor executes.

    fpu: `none`, `single` or `double`. isa: as in platform files.
    """
    has_rounding, has_vectors = fpu == "double" or not isa.startswith("armv7"), isa.startswith(VECTORS)
    is_small = isa.startswith(SMALL)
    integers = {**_INTEGERS, **(_COUNTED if has_vectors else {}), **(_WITHOUT_DIVISION if is_small else {})}
    has_doubles = fpu == "double" or has_vectors
    by_fpu = {**_BY_FPU, **(_ROUNDED_BY_FPU if has_rounding else {}), **(_BY_WIDE_FPU if has_doubles else {})}
    by_library = {**_BY_LIBRARY, **(_BY_SMALL_LIBRARY if is_small else {})}
    total = 0.0
    for kind, times in work.items():
        if not kind.startswith(SAVED):
            saved = work.get(f"{SAVED}{kind}", 0) if has_vectors else 0
            family = kind.partition(" ")[0]
            in_fpu = fpu == "double" or (fpu == "single" and family == "float")
            each = _each(kind, integers, by_fpu if in_fpu else by_library)
            total += (times - saved) * each * (1.0 if in_fpu or family != "double" else _DOUBLE_BY_LIBRARY)
    return round(total)


def _each(kind: str, integers: Mapping[str, float], floats: Mapping[str, float]) -> float:
    if kind in integers:
        return integers[kind]
    family, operation = kind.split(" ")
    if family not in ("float", "double"):
        return integers["integer divide"]
    return floats.get(operation, floats["other"])
