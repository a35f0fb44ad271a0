"""Print lowered TIR expressions as C: exact literals, explicit conversions, and 16-bit floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from tvm import tirx
from tvm.ir import Call, Expr, StringImm, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.c_text.narrow_floats import NARROW_FLOATS
from codegen_c.c_text.text import C_TYPES, number
from codegen_c.tir import edges, helpers
from codegen_c.tir.helpers import PRIMARY
from codegen_c.tir.intrinsics import dtype_of, library_function
from codegen_c.tir.plain_c import CannotLowerError, Helper
from codegen_c.tir.ranges import clamped, divides_by_edge, may_overflow, place_inside, reads_elements, shifts_too_far
from codegen_c.tir.rows import NamedRows, row_of

UNARY, FACTOR, TERM, SHIFT, RELATION, EQUALITY, BITS, AND, OR, CHOICE = range(PRIMARY - 1, 4, -1)

ARITHMETIC = {tirx.Mul: ("*", FACTOR), tirx.Div: ("/", FACTOR), tirx.Mod: ("%", FACTOR)}
ARITHMETIC |= {tirx.Add: ("+", TERM), tirx.Sub: ("-", TERM)}
_LOGIC = {tirx.Mul: tirx.And, tirx.Add: tirx.Or, tirx.Sub: tirx.NE}
"""Logic operators that replace arithmetic of bools, as in numpy: a sum is true if one operand is."""
RELATIONS = {tirx.LT: ("<", RELATION), tirx.LE: ("<=", RELATION), tirx.GT: (">", RELATION), tirx.GE: (">=", RELATION)}
RELATIONS |= {tirx.EQ: ("==", EQUALITY), tirx.NE: ("!=", EQUALITY)}
BITWISE = {tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^"}
BITWISE_CALLS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}

Text = tuple[str, int]  # C text, and how tightly its outermost operator binds


class ExpressionPrinter:
    """Printer of the expressions of one function.

    names: C text of each variable and buffer in scope. scalars: buffers of one element that are local variables. rows:
    pointers to the first elements of rows. helpers, headers: collected as the printed text needs them; dtypes: the
    types that the text names.
    """

    def __init__(self) -> None:
        self.names: dict[Var, str] = {}
        self.scalars: set[Var] = set()
        self.rows: NamedRows = {}
        self.helpers: dict[str, Helper] = {}
        self.headers: set[str] = {"stdint.h"}
        self.dtypes: set[str] = set()
        self.analyzer = Analyzer()
        self.in_index = False

    def text(self, expr: Expr, at_least: int = 0) -> str:
        """Return `expr` as C, in parentheses if it binds less tightly than `at_least`."""
        text, level = self._print(expr)
        return text if level >= at_least else f"({text})"

    def operand(self, expr: Expr, other: Expr | None = None, at_least: int = 0) -> str:
        """Return `expr` as an operand beside `other` of the same type, so that a small literal needs no type."""
        small = isinstance(expr, tirx.IntImm) and abs(int(expr.value)) < 2**31 and dtype_of(expr) == "int64"
        if small and not isinstance(other, tirx.IntImm):
            return number(expr.value, "int32")
        return self.text(expr, at_least)

    def c_type(self, dtype: str) -> str:
        """Return the element type in C. Raises CannotLowerError for a type that C11 lacks."""
        if dtype not in C_TYPES:
            raise CannotLowerError(f"a value of type {dtype}; C11 has {', '.join(C_TYPES)}")
        self.dtypes.add(dtype)
        if dtype == "bool":
            self.headers.add("stdbool.h")
        return C_TYPES[dtype]

    def element(self, buffer: Var, indices: list[Expr]) -> str:
        """Return the C lvalue of one element of a flat buffer."""
        name = self.names[buffer]
        if buffer in self.scalars:
            return name
        if len(indices) != 1:
            raise CannotLowerError(f"a buffer of {len(indices)} dimensions left by lowering")
        outer, self.in_index = self.in_index, True
        row = row_of(self.rows, buffer, indices[0])
        name, index = (name, self.text(indices[0])) if row is None else (row.name, self.text(row.rest))
        self.in_index = outer
        return f"{name}[{index}]"

    def _print(self, expr: Expr) -> Text:
        kind = type(expr)
        if isinstance(expr, Var):
            if expr not in self.names:
                raise CannotLowerError(f"the number {expr.name}, which is not known before it runs")
            return self.names[expr], PRIMARY
        if isinstance(expr, tirx.IntImm | tirx.FloatImm):
            return self._number(expr)
        refuse_arithmetic(expr)
        if isinstance(expr, TensorLoad):
            return self.element(expr.source, list(expr.indices)), PRIMARY
        if kind in ARITHMETIC:
            return self._arithmetic(expr, *ARITHMETIC[kind])
        if kind in RELATIONS:
            return self._relation(expr, *RELATIONS[kind])
        if kind in BITWISE:
            return self._bitwise(expr, expr.a, expr.b, BITWISE[kind])
        if isinstance(expr, tirx.LShift | tirx.RShift):
            return self._shift(expr.a, expr.b, dtype_of(expr), left=isinstance(expr, tirx.LShift))
        if isinstance(expr, tirx.BitwiseNot):
            return self._complement(expr.a, dtype_of(expr))
        if isinstance(expr, tirx.FloorDiv | tirx.FloorMod):
            return self._floor(expr)
        if isinstance(expr, tirx.Min | tirx.Max):
            return printed_extreme(self, expr)
        if isinstance(expr, tirx.And):
            return f"{self.text(expr.a, AND)} && {self.text(expr.b, AND)}", AND
        if isinstance(expr, tirx.Or):
            return f"{self._alternative(expr.a)} || {self._alternative(expr.b)}", OR
        if isinstance(expr, tirx.Not):
            return f"!{self.text(expr.a, UNARY)}", UNARY
        if isinstance(expr, tirx.Select):
            return self._choice(expr.condition, expr.true_value, expr.false_value)
        if isinstance(expr, tirx.Cast):
            return self._cast(expr)
        if isinstance(expr, tirx.Let):
            self.names[expr.var] = self.text(expr.value, PRIMARY)
            return self._print(expr.body)
        if isinstance(expr, Call):
            return self._call(expr)
        raise CannotLowerError(f"a {kind.__name__} expression")

    def _number(self, expr: tirx.IntImm | tirx.FloatImm) -> Text:
        self.c_type(dtype_of(expr))
        text = number(expr.value, dtype_of(expr))
        if not math.isfinite(expr.value):
            self.headers.add("math.h")
        return text, UNARY if text.startswith(("-", "(double)")) else PRIMARY

    def _arithmetic(self, expr: tirx.Add, symbol: str, level: int) -> Text:
        dtype = dtype_of(expr)
        if dtype == "bool":  # C compilers warn of products and sums of bools
            return self._print(_LOGIC[type(expr)](expr.a, expr.b))
        if isinstance(expr, tirx.Mod) and dtype.startswith("float"):
            return self._library("fmod", dtype, [expr.a, expr.b])
        if isinstance(expr, tirx.Div | tirx.Mod) and self._needs_guard(expr):
            return self.helped(edges.divide_helper(dtype, floor=False, remainder=symbol == "%"), expr.a, expr.b)
        if self.wraps(expr):
            return f"({self.c_type(dtype)})({self._unsigned(expr, level)})", UNARY
        # The right operand keeps its parentheses at the same level: the order of float additions is the model's.
        left, right = self.operand(expr.a, expr.b, level), self.operand(expr.b, expr.a, level + 1)
        if dtype == "uint16" and symbol == "*":
            left = f"(uint32_t){self.text(expr.a, UNARY)}"  # C would promote to int, which overflows
        return self._narrowed(f"{left} {symbol} {right}", level, dtype)

    def wraps(self, expr: Expr) -> bool:
        """Return True if integer arithmetic must be unsigned in C, where signed overflow is undefined."""
        if self.in_index or not isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
            return False
        return may_overflow(expr, self.analyzer)

    def _unsigned(self, expr: Expr, at_least: int) -> str:
        """Print signed arithmetic modulo 2^32 or 2^64 with unsigned types: the same bits, defined for all operands."""
        if isinstance(expr, tirx.IntImm) and int(expr.value) >= 0:
            return number(expr.value, f"u{dtype_of(expr)}")
        if not self.wraps(expr):
            return f"({self.c_type('u' + dtype_of(expr))}){self.text(expr, UNARY)}"
        symbol, level = ARITHMETIC[type(expr)]
        text = f"{self._unsigned(expr.a, level)} {symbol} {self._unsigned(expr.b, level + 1)}"
        return text if level >= at_least else f"({text})"

    def _needs_guard(self, expr: tirx.Div | tirx.Mod | tirx.FloorDiv | tirx.FloorMod) -> bool:
        is_integer = not dtype_of(expr).startswith("float")
        return is_integer and reads_elements(expr) and divides_by_edge(expr.b, self.analyzer)

    def _relation(self, expr: tirx.LT, symbol: str, level: int) -> Text:
        zero = isinstance(expr.b, tirx.IntImm) and int(expr.b.value) == 0
        if zero and symbol in ("<", ">=") and dtype_of(expr.b).startswith("uint"):
            self.headers.add("stdbool.h")
            return ("false" if symbol == "<" else "true"), PRIMARY
        left, right = self.operand(expr.a, expr.b, SHIFT), self.operand(expr.b, expr.a, SHIFT)
        if left == right and not (dtype_of(expr.a).startswith("float") and symbol not in ("<", ">")):
            self.headers.add("stdbool.h")  # compilers warn of self-comparison; NaN is neither less nor greater
            return ("true" if "=" in symbol and symbol != "!=" else "false"), PRIMARY
        return f"{left} {symbol} {right}", level

    def _bitwise(self, expr: Expr, left: Expr, right: Expr, symbol: str) -> Text:
        text = f"{self.text(left, UNARY)} {symbol} {self.text(right, UNARY)}"
        return self._narrowed(text, BITS, dtype_of(expr))

    def _narrowed(self, text: str, level: int, dtype: str) -> Text:
        """Convert small integers back after each operation: C computes them as int, TIR wraps them."""
        if dtype.endswith(("int8", "int16")):
            return f"({self.c_type(dtype)})({text})", UNARY
        self.c_type(dtype)
        return text, level

    def _floor(self, expr: tirx.FloorDiv | tirx.FloorMod) -> Text:
        dtype, is_div = dtype_of(expr), isinstance(expr, tirx.FloorDiv)
        if self._needs_guard(expr):
            return self.helped(edges.divide_helper(dtype, floor=True, remainder=not is_div), expr.a, expr.b)
        lowest = (self.analyzer.const_int_bound(side).min_value for side in (expr.a, expr.b))
        if dtype.startswith("uint") or all(bound >= 0 for bound in lowest):
            symbol = "/" if is_div else "%"
            text = f"{self.text(expr.a, FACTOR)} {symbol} {self.text(expr.b, UNARY)}"
            return self._narrowed(text, FACTOR, dtype)
        return self.helped(edges.divide_helper(dtype, floor=True, remainder=not is_div), expr.a, expr.b)

    def _alternative(self, expr: Expr) -> str:
        return self.text(expr, OR) if isinstance(expr, tirx.Or) else self.text(expr, EQUALITY)

    def _choice(self, condition: Expr, yes: Expr, no: Expr) -> Text:
        """Print a choice by `?:`, which evaluates only the chosen branch, so a guarded load stays in its buffer."""
        test = self.text(condition, UNARY)
        return f"{test} ? {self.text(yes, CHOICE + 1)} : {self.text(no, CHOICE + 1)}", CHOICE

    def _cast(self, expr: tirx.Cast) -> Text:
        target, source = dtype_of(expr), dtype_of(expr.value)
        if target == source:
            return self._print(expr.value)
        narrow = narrow_cast(self, expr)
        if narrow is not None:
            return narrow
        if target == "bool":
            return f"{self.text(expr.value, SHIFT)} != {number(0, source)}", EQUALITY
        if source.startswith("float") and not target.startswith("float") and reads_elements(expr.value):
            return self._truncation(expr, source, target)
        return f"({self.c_type(target)}){self.text(expr.value, UNARY)}", UNARY

    def _truncation(self, expr: tirx.Cast, source: str, target: str) -> Text:
        """Print the conversion of a float to an integer, which C leaves undefined for values out of range."""
        clip = clamped(expr)
        if clip is not None:
            value, low, high = clip
            limits = (tirx.const(low, source), tirx.const(high, source))
            return self.helped(edges.clamp_helper(source, target), value, *limits)
        self.headers.add("math.h")
        if edges.bits_of(target) >= 32:
            return self.helped(edges.truncate_helper(source, target), expr.value)
        wide, _ = self.helped(edges.truncate_helper(source, "int32"), expr.value)
        return f"({self.c_type(target)}){wide}", UNARY

    def helped(self, helper: Helper, *arguments: Expr) -> Text:
        """Return a call of a helper function on expressions."""
        return self.calls(helper, ", ".join(map(self.text, arguments)))

    def calls(self, helper: Helper, arguments: str) -> Text:
        """Return a call of a helper function on C text."""
        self.helpers[helper.name] = helper
        return f"{helper.name}({arguments})", PRIMARY

    def _library(self, name: str, dtype: str, arguments: list[Expr]) -> Text:
        function = library_function(name, dtype)
        self.headers.add("math.h")
        return f"{function}({', '.join(map(self.text, arguments))})", PRIMARY

    def _call(self, expr: Call) -> Text:
        name = expr.op.name.rpartition(".")[2]
        arguments, dtype = list(expr.args), dtype_of(expr)
        if name in ("call_pure_extern", "call_extern"):
            assert isinstance(arguments[0], StringImm)
            return self._library(arguments[0].value.removesuffix("f"), dtype, arguments[1:])
        special: dict[str, Callable[[], Text]] = {
            "if_then_else": lambda: self._choice(*arguments),
            "likely": lambda: self._print(arguments[0]),
            "shift_left": lambda: self._shift(*arguments, dtype, left=True),
            "shift_right": lambda: self._shift(*arguments, dtype, left=False),
            "bitwise_not": lambda: self._complement(arguments[0], dtype),
            "sigmoid": lambda: self._sigmoid(arguments[0], dtype),
            "rsqrt": lambda: (f"{number(1, dtype)} / {self._library('sqrt', dtype, arguments)[0]}", FACTOR),
            "exp10": lambda: self._library("pow", dtype, [tirx.const(10.0, dtype), *arguments]),
            "isnan": lambda: (f"{self.text(arguments[0], SHIFT)} != {self.text(arguments[0], SHIFT)}", EQUALITY),
            "isinf": lambda: self._against_infinity(arguments[0], "=="),
            "isfinite": lambda: self._against_infinity(arguments[0], "<"),
            "popcount": lambda: self.helped(helpers.popcount_helper(dtype), *arguments),
            "reinterpret": lambda: self.helped(helpers.reinterpret_helper(dtype_of(arguments[0]), dtype), *arguments),
        }
        if name in BITWISE_CALLS:
            return self._bitwise(expr, *arguments, BITWISE_CALLS[name])
        return special[name]() if name in special else self._library(name, dtype, arguments)

    def _shift(self, value: Expr, count: Expr, dtype: str, *, left: bool) -> Text:
        """Print a shift; to the left in the unsigned type, because C leaves shifts of negative numbers undefined."""
        if shifts_too_far(count, dtype, self.analyzer):
            return self.helped(edges.shift_helper(dtype, left=left), value, count)
        if not left:
            return self._narrowed(f"{self.text(value, UNARY)} >> {self.text(count, UNARY)}", BITS, dtype)
        wide = "uint64_t" if dtype.endswith("64") else "uint32_t"
        shifted = f"({wide}){self.text(value, UNARY)} << {self.text(count, UNARY)}"
        return f"({self.c_type(dtype)})({shifted})", UNARY

    def _complement(self, value: Expr, dtype: str) -> Text:
        if dtype == "bool":
            return f"!{self.text(value, UNARY)}", UNARY
        return self._narrowed(f"~{self.text(value, UNARY)}", UNARY, dtype)

    def _sigmoid(self, value: Expr, dtype: str) -> Text:
        self.headers.add("math.h")
        one, exp = number(1, dtype), library_function("exp", dtype)
        return f"{one} / ({one} + {exp}(-{self.text(value, PRIMARY)}))", FACTOR

    def _against_infinity(self, value: Expr, symbol: str) -> Text:
        dtype = dtype_of(value)
        magnitude = self._library("fabs", dtype, [value])[0]
        return f"{magnitude} {symbol} {number(float('inf'), dtype)}", EQUALITY if symbol == "==" else RELATION


_MOVES = frozenset(("if_then_else", "likely", "reinterpret"))
_COMPUTES = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod,
    tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE,
)  # fmt: skip


class Printer(Protocol):
    """Interface of a printer of expressions, which collects the functions that they call."""

    def helped(self, helper: Helper, *arguments: Expr) -> Text: ...
    def calls(self, helper: Helper, argument: str) -> Text: ...
    def text(self, expr: Expr, at_least: int = 0) -> str: ...


def refuse_arithmetic(expr: Expr) -> None:
    """Raise CannotLowerError for an operator on 16-bit floats, which must be computed in float32 between casts."""
    if isinstance(expr, _COMPUTES):
        dtypes = [str(side.ty.dtype) for side in (expr.a, expr.b)]
    elif isinstance(expr, Call) and expr.op.name.rpartition(".")[2] not in _MOVES:
        dtypes = [str(expr.ty.dtype)]
    else:
        return
    narrow = next((dtype for dtype in dtypes if dtype in NARROW_FLOATS), None)
    if narrow:
        raise CannotLowerError(f"arithmetic on {narrow}")


def narrow_cast(printer: Printer, expr: tirx.Cast) -> Text | None:
    """Print a cast from or to 16-bit floats by way of float32; return None for a cast between other types."""
    target, source = str(expr.ty.dtype), str(expr.value.ty.dtype)
    if source in NARROW_FLOATS:
        if target == "float32":
            return printer.helped(helpers.decode_helper(source), expr.value)
        wide = printer.text(tirx.Cast(target, tirx.Cast("float32", expr.value)))
        return f"({wide})", helpers.PRIMARY
    if target not in NARROW_FLOATS:
        return None
    encode = helpers.encode_helper(target)
    if source == "float32":
        return printer.helped(encode, expr.value)
    if source == "float64":
        return printer.calls(encode, printer.helped(helpers.odd_helper(), expr.value)[0])
    return printer.calls(encode, printer.text(tirx.Cast("float32", expr.value)))


def printed_extreme(printer: Printer, expr: tirx.Min | tirx.Max) -> Text:
    """Print an extreme: an index clamped to a buffer, a float and a number, or any two values of a type."""
    dtype, is_max = str(expr.ty.dtype), isinstance(expr, tirx.Max)
    inside = place_inside(expr)
    if inside is not None:
        return printer.helped(helpers.inside_helper(dtype), *inside)
    if isinstance(expr.b, tirx.FloatImm) and not math.isnan(expr.b.value):
        return printer.helped(helpers.limit_helper(dtype, is_max=is_max), expr.a, expr.b)
    make = helpers.maximum_helper if is_max else helpers.minimum_helper
    return printer.helped(make(dtype), expr.a, expr.b)
