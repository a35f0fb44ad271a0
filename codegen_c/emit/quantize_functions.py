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
    up, down = "rest >= 0.5f", "rest <= -0.5f"
    halves = "away from zero, as TensorFlow Lite's QUANTIZE rounds them"
    if interface.rounding == "onnx":
        halves = "to even numbers, as ONNX's QuantizeLinear rounds them"
        odd = "((whole % 2) != 0)"
        up, down = (
            f"(rest {sign} {half}) || ((rest {sign}= {half}) && {odd})"
            for sign, half in ((">", "0.5f"), ("<", "-0.5f"))
        )
    body = [
        "int32_t whole = 0;",
        "if (steps >= (float)most) {", block("whole = most;"), "}",
        "if (steps <= (float)least) {", block("whole = least;"), "}",
        "if ((steps > (float)least) && (steps < (float)most)) {",
        block([
            "whole = (int32_t)steps;", "const float rest = steps - (float)whole;",
            f"const bool is_above = {up};", f"const bool is_below = {down};",
            "whole += is_above ? 1 : 0;", "whole -= is_below ? 1 : 0;",
        ]),
        "}", "return whole;",
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
    least, most = (str(int(bound) - quantization.zero_point) for bound in (limits.min, limits.max))
    if limits.bits == 32:
        least, most = "INT32_MIN", "INT32_MAX"
    # A zero point of 0 is not added: an operation without an effect is one too many for MISRA (2.2).
    nearest = f"{interface.nearest}(real / {scale}, {least}, {most})"
    shifted = [f"int32_t value = {nearest};", f"value += {zero_point};", f"return ({port.c_type})value;"]
    shift = f" - {zero_point}" if quantization.zero_point else ""
    if not shift:
        shifted = [f"return ({port.c_type}){nearest};"]
    stands_for = [f"const int32_t steps = (int32_t)value{shift};", f"return {scale} * (float)steps;"]
    return [
        f"static inline {port.c_type} {interface.quantize(port)}(float real)\n{{\n{block(shifted)}\n}}\n",
        f"static inline float {interface.dequantize(port)}({port.c_type} value)\n{{\n{block(stands_for)}\n}}\n",
    ]
