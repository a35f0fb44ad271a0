"""C code for 16-bit floats: conversions between float and the bits in a uint16_t, because C11 has no 16-bit float.

Sources: IEEE 754 binary16; bfloat16 is the upper half of a binary32. Conversions to 16 bits round to nearest, ties to
even.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

NUMPY_TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
NARROW_FLOATS = tuple(NUMPY_TYPES)

_UNION = "union {\n        float value;\n        uint32_t word;\n    } bits;"
_DECODE = {
    "float16": """\
    const uint32_t sign = (a & UINT32_C(0x8000)) << 16;
    const uint32_t magnitude = a & UINT32_C(0x7fff);
    if (magnitude >= 0x7c00u) {
        bits.word = 0x7f800000u | (magnitude << 13); /* infinity, or not a number */
    } else if (magnitude >= 0x0400u) {
        bits.word = (magnitude << 13) + 0x38000000u; /* exponents are 15 and 127 above their values */
    } else {
        bits.value = (float)magnitude * 5.9604645e-8f; /* units of 2^-24 */
    }
    bits.word |= sign;
""",
    "bfloat16": "    bits.word = (uint32_t)a << 16;\n",
}
_ENCODE = {
    "float16": """\
    const uint32_t sign = (bits.word >> 16) & 0x8000u;
    const uint32_t magnitude = bits.word & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u; /* not a number */
    } else if (magnitude >= 0x477ff000u) {
        half = 0x7c00u; /* from 65520 on */
    } else if (magnitude >= 0x38800000u) {
        half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else {
        bits.word = magnitude;
        bits.value += 0.5f; /* rounds to units of 2^-24 */
        half = bits.word - 0x3f000000u;
    }
    return (uint16_t)(sign | half);
""",
    "bfloat16": """\
    if (a != a) {
        return (uint16_t)((bits.word >> 16) | 0x40u);
    }
    return (uint16_t)((bits.word + 0x7fffu + ((bits.word >> 16) & 1u)) >> 16);
""",
}


def bits_of(value: float, dtype: str) -> int:
    """Return the bits of the 16-bit float nearest to a value."""
    with np.errstate(over="ignore"):
        return int(np.asarray(value, NUMPY_TYPES[dtype]).view(np.uint16))


def decode_function(name: str, dtype: str) -> str:
    """Return a C function that converts the bits of a 16-bit float to float, exactly."""
    return f"static inline float {name}(uint16_t a)\n{{\n    {_UNION}\n{_DECODE[dtype]}    return bits.value;\n}}\n"


def encode_function(name: str, dtype: str) -> str:
    """Return a C function that converts a float to the bits of the nearest 16-bit float."""
    head = f"static inline uint16_t {name}(float a)\n{{\n    {_UNION}\n    bits.value = a;\n"
    return f"{head}{_ENCODE[dtype]}}}\n"


def odd_function(name: str) -> str:
    """Return a C function that rounds a double to float, to odd.

    An inexact result gets an odd last bit. Rounding it again, to 16 bits, then gives the same bits as rounding the
    double directly; two roundings to nearest would not.
    """
    return (
        f"static inline float {name}(double a)\n{{\n    {_UNION}\n    bits.value = (float)a;\n"
        "    if ((double)bits.value != a && a == a && (bits.word & 1u) == 0u) {\n"
        "        const double magnitude = a < 0.0 ? -a : a;\n"
        "        const double rounded = bits.value < 0.0f ? -(double)bits.value : (double)bits.value;\n"
        "        bits.word = rounded > magnitude ? bits.word - 1u : bits.word + 1u;\n"
        "    }\n"
        "    return bits.value;\n}\n"
    )
