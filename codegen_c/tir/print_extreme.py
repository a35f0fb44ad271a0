"""The larger or smaller of two expressions as C: by the function that knows most of them."""

from __future__ import annotations

import math

from tvm import tirx

from codegen_c.tir import helpers
from codegen_c.tir.narrow import Printer, Text
from codegen_c.tir.ranges import place_inside


def printed_extreme(printer: Printer, expr: tirx.Min | tirx.Max) -> Text:
    """A place kept inside of a buffer, a float beside a number, or any two values of a type."""
    dtype, is_max = str(expr.ty.dtype), isinstance(expr, tirx.Max)
    inside = place_inside(expr)
    if inside is not None:
        return printer.helped(helpers.inside_helper(dtype), *inside)
    if isinstance(expr.b, tirx.FloatImm) and not math.isnan(expr.b.value):
        return printer.helped(helpers.limit_helper(dtype, is_max=is_max), expr.a, expr.b)
    make = helpers.maximum_helper if is_max else helpers.minimum_helper
    return printer.helped(make(dtype), expr.a, expr.b)
