"""Helpers: small C functions that printed bodies may call. `$` stands for the name of the calling function."""

from __future__ import annotations

from codegen_c.c_text.narrow_floats import decode_function, encode_function, odd_function
from codegen_c.c_text.text import C_TYPES
from codegen_c.tir.plain_c import CannotLowerError, Helper

PRIMARY = 15
"""Precedence of C text that binds as tightly as a name or a call."""
SHORT_TYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}


def short_type(dtype: str) -> str:
    """Return the short name of a type in helpers' names: `float32` -> `f32`."""
    kind = dtype.rstrip("0123456789")
    return SHORT_TYPES[kind] + dtype[len(kind) :]


def minimum_helper(dtype: str) -> Helper:
    """Return the minimum of two values; NaN if one of them is NaN."""
    return _selection("min", "<", dtype)


def maximum_helper(dtype: str) -> Helper:
    """Return the maximum of two values; NaN if one of them is NaN."""
    return _selection("max", ">", dtype)


def running_helper(dtype: str, *, is_max: bool) -> Helper:
    """Return the running extreme after the next element, which replaces it only if it lies beyond; NaN never does."""
    verb, relation = ("larger", ">") if is_max else ("smaller", "<")
    name, c_type = f"$_{verb}_{short_type(dtype)}", C_TYPES[dtype]
    return _inline(name, f"{c_type} {name}({c_type} so_far, {c_type} next)", f"next {relation} so_far ? next : so_far")


def popcount_helper(dtype: str) -> Helper:
    """Return the number of set bits."""
    name, c_type = f"$_popcount_{short_type(dtype)}", C_TYPES[dtype]
    return Helper(
        name=name,
        text=f"static inline {c_type} {name}({c_type} a)\n{{\n"
        "    uint64_t rest = (uint64_t)a;\n"
        + ("" if dtype.endswith("64") else f"    rest &= (UINT64_C(1) << {dtype.lstrip('uint')}) - 1u;\n")
        + f"    {c_type} count = 0;\n"
        "    while (rest != 0u) {\n"
        "        rest &= rest - 1u;\n"
        "        ++count;\n"
        "    }\n"
        "    return count;\n"
        "}\n",
    )


def reinterpret_helper(source: str, target: str) -> Helper:
    """Return the same bits read as another type of the same size."""
    if source[-2:] != target[-2:] or "bool" in (source, target):
        raise CannotLowerError(f"reinterpret of {source} as {target}")
    name, from_type, to_type = f"$_{short_type(target)}_of_{short_type(source)}", C_TYPES[source], C_TYPES[target]
    return Helper(
        name=name,
        text=f"static inline {to_type} {name}({from_type} a)\n{{\n"
        f"    union {{\n        {from_type} from;\n        {to_type} to;\n    }} bits;\n"
        "    bits.from = a;\n    return bits.to;\n}\n",
    )


def decode_helper(dtype: str) -> Helper:
    """Return a 16-bit float as float32."""
    name = f"$_f32_of_{short_type(dtype)}"
    return Helper(name=name, text=decode_function(name, dtype))


def encode_helper(dtype: str) -> Helper:
    """Return the nearest 16-bit float."""
    name = f"$_{short_type(dtype)}_of_f32"
    return Helper(name=name, text=encode_function(name, dtype))


def odd_helper() -> Helper:
    """Return a double as float32, rounded to odd on its way to 16 bits."""
    return Helper(name="$_f32_of_f64", text=odd_function("$_f32_of_f64"))


def limit_helper(dtype: str, *, is_max: bool) -> Helper:
    """Return the maximum or minimum of a float and a constant, which wins a tie; NaN if the float is NaN."""
    verb, relation = ("at_least", "<=") if is_max else ("at_most", ">=")
    name, c_type = f"$_{verb}_{short_type(dtype)}", C_TYPES[dtype]
    return _inline(name, f"{c_type} {name}({c_type} a, {c_type} limit)", f"a {relation} limit ? limit : a")


def inside_helper(dtype: str) -> Helper:
    """Return the nearest integer from 0 to `last`."""
    name, c_type, unsigned = f"$_inside_{short_type(dtype)}", C_TYPES[dtype], C_TYPES[f"u{dtype}"]
    inside = f"({unsigned})a <= ({unsigned})last"
    return _inline(name, f"{c_type} {name}({c_type} a, {c_type} last)", f"{inside} ? a : (a < 0 ? 0 : last)")


def _selection(verb: str, relation: str, dtype: str) -> Helper:
    name, c_type = f"$_{verb}_{short_type(dtype)}", C_TYPES[dtype]
    head = f"{c_type} {name}({c_type} a, {c_type} b)"
    if not dtype.startswith("float"):
        return _inline(name, head, f"a {relation} b ? a : b")
    # The reversed comparison lets a processor reuse the flags of the first one.
    reverse = "<=" if relation == ">" else ">="
    return _inline(name, head, f"a {reverse} b ? b : (a {relation} b || a != a ? a : b)")


def _inline(name: str, head: str, result: str) -> Helper:
    return Helper(name=name, text=f"static inline {head}\n{{\n    return {result};\n}}\n")
