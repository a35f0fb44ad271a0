"""Functions of `<model>.h` that turn real numbers into integers of a quantized input or output, and back.

They are `static inline`, so firmware that calls none of them pays nothing, and they need no libm. C11 and C++11.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.program.interface import Interface, Port

_WIDEST_BITS = 16
"""Widest integers whose distances from any zero point are exact in float32."""


def convertible(port: Port) -> bool:
    """True for a port that has these functions: of 8 or 16 bits, or of int32 around zero."""
    if port.quantization is None:
        return False
    return np.iinfo(port.dtype).bits <= _WIDEST_BITS or (port.dtype == "int32" and not port.quantization.zero_point)


def quantize_functions(interface: Interface) -> str:
    """Definitions for the header, after its macros; empty for a model whose ports are plain numbers."""
    ports = [port for port in (*interface.inputs, *interface.outputs) if convertible(port)]
    if not ports:
        return ""
    return "\n".join([_nearest(interface), *(text for port in ports for text in _functions(interface, port))])


def _nearest(interface: Interface) -> str:
    """The function that rounds steps from the zero point; comparisons are none of equality, for -Wfloat-equal."""
    if interface.rounding == "onnx":
        halves = "to even numbers, as ONNX's QuantizeLinear rounds them"
        up = "rest > 0.5f || (rest >= 0.5f && whole % 2 != 0)"
        down = "rest < -0.5f || (rest <= -0.5f && whole % 2 != 0)"
    else:
        halves = "away from zero, as TensorFlow Lite's QUANTIZE rounds them"
        up, down = "rest >= 0.5f", "rest <= -0.5f"
    body = [
        "if (steps >= (float)most) {", block("return most;"), "}",
        "if (!(steps > (float)least)) {", block("return steps <= (float)least ? least : 0;"), "}",
        "int32_t whole = (int32_t)steps;", "const float rest = steps - (float)whole;",
        f"if ({up}) {{", block("whole += 1;"), f"}} else if ({down}) {{", block("whole -= 1;"), "}",
        "return whole;",
    ]  # fmt: skip
    return (
        "/* Real numbers as integers of quantized inputs and outputs, and back. Halves are rounded\n"
        f"   {halves}. What lies outside of the type becomes its nearest\n"
        "   end, and NaN the zero point. */\n"
        f"static inline int32_t {interface.nearest}(float steps, int32_t least, int32_t most)\n{{\n{block(body)}\n}}\n"
    )


def _functions(interface: Interface, port: Port) -> list[str]:
    quantization, limits = port.quantization, np.iinfo(port.dtype)
    assert quantization is not None, "the port is quantized"
    scale, zero_point = interface.port_macro(port, "SCALE"), interface.port_macro(port, "ZERO_POINT")
    least, most = (
        f"INT32_{end}" if limits.bits == 32 else f"{bound} - {zero_point}"
        for end, bound in (("MIN", limits.min), ("MAX", limits.max))
    )
    nearest = f"{interface.nearest}(real / {scale}, {least}, {most})"
    shifted = nearest if limits.bits == 32 else f"({port.c_type})({nearest} + {zero_point})"
    value = "value" if limits.bits == 32 else f"((int32_t)value - {zero_point})"
    return [
        f"static inline {port.c_type} {interface.quantize(port)}(float real)\n{{\n{block(f'return {shifted};')}\n}}\n",
        f"static inline float {interface.dequantize(port)}({port.c_type} value)\n{{\n"
        f"{block(f'return {scale} * (float){value};')}\n}}\n",
    ]
