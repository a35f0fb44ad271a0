"""C functions for operations that C leaves undefined: quotients by zero, wide shifts, out-of-range float conversions.

Each returns the same value on every processor: the value of onnxruntime on x86-64 if it defines one (docs/edges.md).
`$` stands for the name of the calling function.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, number
from codegen_c.tir.helpers import short_type
from codegen_c.tir.intrinsics import library_function
from codegen_c.tir.plain_c import Helper


def bits_of(dtype: str) -> int:
    """Return the width of an integer type in bits."""
    return int(dtype.lstrip("uint"))


def divide_helper(dtype: str, *, floor: bool, remainder: bool) -> Helper:
    """Return a quotient or remainder, rounded toward zero or down; 0 for a zero divisor, and -INT_MIN is INT_MIN."""
    verb = ("floor_" if floor else "") + ("mod" if remainder else "div")
    is_signed, c_type = dtype.startswith("int"), C_TYPES[dtype]
    lines = ["if (b == 0) {", "    return 0;", "}"]
    if floor and is_signed and not remainder:  # for negative dividends: -1 - (-1 - a) / b
        below = f"const {c_type} below = ({c_type})(a < 0 ? -1 : 0);"
        lines = ["if (b > 0) {", f"    {below}", f"    return ({c_type})(((a ^ below) / b) ^ below);", "}", *lines]
    if is_signed:
        by_minus_one = "0" if remainder else f"({c_type})(0u - ({_unsigned(dtype)})a)"
        lines += ["if (b == -1) {", f"    return {by_minus_one};", "}"]
    if not (floor and is_signed):
        lines += [f"return ({c_type})(a {'%' if remainder else '/'} b);"]
    elif remainder:
        lines += [
            f"const {c_type} remainder = ({c_type})(a % b);",
            f"return ((remainder != 0) && ((remainder < 0) != (b < 0))) ? ({c_type})(remainder + b) : remainder;",
        ]
    else:
        lines += [
            f"const {c_type} quotient = ({c_type})(a / b);",
            f"return ((a > 0) && (a % b != 0)) ? ({c_type})(quotient - 1) : quotient;",
        ]
    return _function(f"$_{verb}_{short_type(dtype)}", c_type, f"{c_type} a, {c_type} b", lines)


def shift_helper(dtype: str, *, left: bool) -> Helper:
    """Return a shift by any count: a count of the width or more leaves 0, or to the right the sign."""
    c_type, bits = C_TYPES[dtype], bits_of(dtype)
    is_signed = dtype.startswith("int")
    inside = f"count >= 0 && count < {bits}" if is_signed else f"count < {bits}u"
    wide = "uint64_t" if bits == 64 else "uint32_t"
    shifted = f"({c_type})(({wide})a << count)" if left else f"({c_type})(a >> count)"
    beyond = "(a < 0 ? -1 : 0)" if is_signed and not left else "0"
    name = f"$_shift_{'left' if left else 'right'}_{short_type(dtype)}"
    return _function(name, c_type, f"{c_type} a, {c_type} count", [f"return ({inside}) ? {shifted} : {beyond};"])


def truncate_helper(source: str, target: str) -> Helper:
    """Return a conversion of a float to a 32- or 64-bit integer, toward zero.

    A value out of range becomes the value that x86-64's instructions return.
    """
    bits, from_type, to_type = bits_of(target), C_TYPES[source], C_TYPES[target]
    half, whole = (number(2.0**exponent, source) for exponent in (bits - 1, bits))
    signed, least = f"int{bits}_t", f"INT{bits}_MIN"
    # A double holds numbers between INT32_MIN - 1 and INT32_MIN, which truncate to INT32_MIN.
    reaches = f"a > -{number(2.0**31 + 1, source)}" if (source, bits) == ("float64", 32) else f"a >= -{half}"
    if target.startswith("int"):
        magnitude = f"{library_function('fabs', source)}(a) < {half}"  # INT_MIN takes the other branch
        holds = f"{reaches} && a < {half}" if (source, bits) == ("float64", 32) else magnitude
        lines = [f"return ({holds}) ? ({to_type})a : {least};"]
    else:
        lines = [
            f"if (a >= {half}) {{",
            f"    return a < {whole} ? ({to_type})a : 0u;",
            "}",
            f"return {reaches} ? ({to_type})({signed})a : ({to_type}){least};",
        ]
    return _function(f"$_{short_type(target)}_from_{short_type(source)}", to_type, f"{from_type} a", lines)


def narrow_helper(target: str) -> Helper:
    """Return a conversion of four floats to adjacent small integers, each by way of int32 as in `truncate_helper`.

    With an FPU the function adds the four magnitudes: if the sum is in range, each of them is. Without an FPU it
    compares their bits, which without the sign are in the order of the magnitudes. Hosts compare vectors and need
    neither test. Helpers are printed in the order of their names.
    """
    name, c_type, one = f"$_narrow_{short_type(target)}", C_TYPES[target], truncate_helper("float32", "int32").name
    total = " + ".join(f"fabsf({value})" for value in "abcd")
    limit, bits = number(2.0**31, "float32"), number(int(np.float32(2.0**31).view(np.uint32)) << 1, "uint32")
    each = " && ".join(f"bits.to[{place}] << 1 < {bits}" for place in range(4))
    fits, others = (
        [f"        to[{place}] = ({c_type}){conversion}({value});" for place, value in enumerate("abcd")]
        for conversion in ("(int32_t)", one)
    )
    test = [
        "#if defined(__ARM_FP)", f"    const bool fits = {total} < {limit};",
        "#elif defined(__arm__) || defined(__riscv)",
        "    union {", "        float from[4];", "        uint32_t to[4];", "    } bits = {{a, b, c, d}};",
        f"    const bool fits = {each};",
        "#else", "    const bool fits = false;", "#endif",
    ]  # fmt: skip
    branches = ["    if (fits) {", *fits, "    } else {", *others, "    }"]
    head = f"static inline void {name}(float a, float b, float c, float d, {c_type} *to)"
    return Helper(name=name, text="\n".join([head, "{", *test, *branches, "}", ""]))


def clamp_helper(source: str, target: str) -> Helper:
    """Return a conversion of a float clamped to two numbers of the integer type; NaN becomes the lower one."""
    from_type, to_type = C_TYPES[source], C_TYPES[target]
    name = f"$_{short_type(target)}_between_{short_type(source)}"
    parameters = f"{from_type} a, {from_type} low, {from_type} high"
    lines = [f"const {from_type} raised = a > low ? a : low;", f"return ({to_type})(raised < high ? raised : high);"]
    return _function(name, to_type, parameters, lines)


def _unsigned(dtype: str) -> str:
    return C_TYPES[f"u{dtype}"]


def _function(name: str, result: str, parameters: str, lines: list[str]) -> Helper:
    body = "".join(f"    {line}\n" for line in lines)
    return Helper(name=name, text=f"static inline {result} {name}({parameters})\n{{\n{body}}}\n")
