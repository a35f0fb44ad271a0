"""Print lowered loops and statements of TIR as a C function, and count the operations of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, Range, TensorLoad, Var

from codegen_c.c_text.text import any_type, block, number
from codegen_c.kernels.contract import CFunction, Parameter
from codegen_c.tir.edges import narrow_helper, truncate_helper
from codegen_c.tir.end_loops import end_loops, has_open_loops, shortest
from codegen_c.tir.expressions import RELATION, ExpressionPrinter
from codegen_c.tir.helpers import running_helper
from codegen_c.tir.merge import Merged
from codegen_c.tir.plain_c import CannotLowerError, LoopForm
from codegen_c.tir.rows import Around, NamedRow, row_of, rows_of
from codegen_c.tir.shape_loops import NarrowBlock, narrow_block
from codegen_c.tir.storage import Storage, place_buffers
from codegen_c.tir.work import work_of_loops
from tvm_ext.core.names import identifier, unique


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A printed function, its scratch bytes, and the element types that it names."""

    form: LoopForm
    scratch_bytes: int
    dtypes: frozenset[str]


def print_function(function: tirx.PrimFunc, merged: Merged, places: Mapping[Var, tuple[int, int]]) -> Printed:
    """Return the C of loops whose parameters are the inputs, outputs and constants of `merged`.

    places: bounds of variables that hold the begin of a row. Raises CannotLowerError.
    """
    storage = place_buffers(function.body)
    printer = ExpressionPrinter()
    parameters = _parameters(function, merged, printer)
    for var, parameter in zip(function.params, parameters, strict=True):
        printer.names[var] = parameter.name
    constants = function.params[merged.num_inputs + merged.num_outputs :]
    tables = {
        var: data
        for var, data in zip(constants, merged.constants, strict=True)
        if data.dtype in (np.int16, np.uint16) and data.ndim == 1
    }
    buffers = [printer.c_type(str(buffer.ty.dtype)) for buffer in storage.offsets]
    is_mixed = _is_mixed([*(one.ctype for one in parameters if one.role in ("input", "output")), *buffers])
    bools: list[str] = []
    if is_mixed:
        bools = [one.name for one in parameters if one.role == "output" and one.ctype == "bool"]
        # GCC takes a pointer to bool for incompatible with a pointer to tvm_ext_any_bool, so the function converts it.
        parameters = [
            replace(one, ctype=any_type(one.ctype)) if one.role == "output" and one.ctype != "bool" else one
            for one in parameters
        ]
        printer.names |= {
            var: f"any_{one.name}" for var, one in zip(function.params, parameters, strict=True) if one.name in bools
        }
        printer.headers.add("tvm_ext_kernels.h")
    taken = {parameter.name for parameter in parameters} | {f"any_{name}" for name in bools} | {"scratch"}
    around = Around(turns={}, tables=tables, places=places)
    body = end_loops(function.body)
    lines = [
        *(f"{any_type('bool')} *const any_{name} = ({any_type('bool')} *)(void *){name};" for name in bools),
        *StatementPrinter(printer, storage, taken, around).body(body, is_mixed=is_mixed),
    ]
    words = set(re.findall(r"\w+", "\n".join(lines)))  # operands of a self-comparison are not printed
    unused = [parameter.name for parameter in parameters if parameter.name not in words]
    if storage.scratch_bytes:
        parameters.append(Parameter(name="scratch", ctype="uint8_t", role="scratch"))
    c_function = CFunction(
        parameters=tuple(parameters),
        body="\n".join([*(f"(void){name};" for name in unused), *lines]),
        helpers="\n".join(helper.text for _, helper in sorted(printer.helpers.items())),
        includes=tuple(sorted(printer.headers)),
    )
    least = work_of_loops(shortest(function.body), storage) if has_open_loops(function.body) else None
    return Printed(
        form=LoopForm(function=c_function, work=work_of_loops(body, storage), least_work=least),
        scratch_bytes=storage.scratch_bytes,
        dtypes=frozenset(printer.dtypes),
    )


def _is_mixed(ctypes: Iterable[str]) -> bool:
    """True if tensors, which may share bytes by plan, have several types besides those of characters.

    Then everything is written through types that may alias. GCC keeps a write after the reads of another type before
    it anyway; clang does not.
    """
    return len({ctype for ctype in ctypes if any_type(ctype) != ctype}) > 1


def _parameters(function: tirx.PrimFunc, merged: Merged, printer: ExpressionPrinter) -> list[Parameter]:
    num_constants = len(merged.constants)
    roles = ["input"] * merged.num_inputs + ["output"] * merged.num_outputs + ["constant"] * num_constants
    return [
        Parameter(name=var.name, ctype=printer.c_type(str(var.ty.dtype)), role=role)
        for var, role in zip(function.params, roles, strict=True)
    ]


IGNORED_CALLS = ("assume", "undef", "start_profile_intrinsic", "end_profile_intrinsic")


class StatementPrinter:
    """Printer of the statements of one function, whose parameters' names are in `printer.names`."""

    def __init__(self, printer: ExpressionPrinter, storage: Storage, taken: set[str], around: Around) -> None:
        self.printer = printer
        self.storage = storage
        self.taken = taken
        self.around = around
        self.row_names: dict[str, str] = {}

    def body(self, statement: tirx.Stmt, *, is_mixed: bool = False) -> list[str]:
        """Return the function's statements, unindented; pointers into scratch come first.

        is_mixed: buffers in scratch are written through types that may alias.
        """
        pointers = []
        for buffer, offset in self.storage.offsets.items():
            c_type = self.printer.c_type(str(buffer.ty.dtype))
            c_type = any_type(c_type) if is_mixed else c_type
            place = f"&scratch[{offset}]" if offset else "scratch"
            pointers.append(f"{c_type} *const {self._name(buffer)} = ({c_type} *)(void *){place};")
        return [*pointers, *self._sequence(_flat(statement))]

    def _sequence(self, statements: list[tirx.Stmt]) -> list[str]:
        """Return the statements of one scope; names that are declared in it are free again after it."""
        outer, names, rows = set(self.taken), dict(self.row_names), dict(self.printer.rows)
        lines: list[str] = []
        following = [*statements[1:], None]
        rest = iter(zip(statements, following, strict=True))
        for statement, after in rest:
            if isinstance(statement, tirx.AllocBuffer) and self._initialises(after, statement.buffer):
                lines.append(self._initialised(statement.buffer, after))
                next(rest)
                continue
            lines += self._statement(statement)
        self.taken, self.row_names, self.printer.rows = outer, names, rows
        return lines

    def _statement(self, statement: tirx.Stmt) -> list[str]:
        text = self.printer.text
        if isinstance(statement, tirx.BufferStore):
            return [self._store(statement)]
        if isinstance(statement, tirx.For):
            return self._loop(statement)
        if isinstance(statement, tirx.IfThenElse):
            return self._branch(statement)
        if isinstance(statement, tirx.While):
            return [f"while ({text(statement.condition)}) {{", *self._indented(statement.body), "}"]
        if isinstance(statement, tirx.AllocBuffer):
            return self._allocation(statement.buffer)
        if isinstance(statement, tirx.DeclBuffer):
            self._alias(statement.buffer)
            return []
        if isinstance(statement, tirx.Bind):
            c_type, value = self.printer.c_type(str(statement.var.ty.dtype)), text(statement.value)
            return [f"const {c_type} {self._name(statement.var)} = {value};"]
        if isinstance(statement, tirx.AttrStmt):
            if not statement.attr_key.startswith("pragma_"):
                raise CannotLowerError(f"an annotation {statement.attr_key}")
            return self._sequence(_flat(statement.body))
        if isinstance(statement, tirx.SeqStmt):
            return self._sequence(_flat(statement))
        if isinstance(statement, tirx.Break | tirx.Continue):
            return ["break;" if isinstance(statement, tirx.Break) else "continue;"]
        if isinstance(statement, tirx.Evaluate):
            return self._evaluation(statement.value)
        raise CannotLowerError(f"a {type(statement).__name__} statement")

    def _store(self, store: tirx.BufferStore) -> str:
        target = self.printer.element(store.buffer, list(store.indices))
        value = store.value
        wide = str(store.buffer.ty.dtype).endswith(("32", "64"))
        runs_on = isinstance(value, tirx.Add | tirx.Max | tirx.Min) and isinstance(value.a, TensorLoad)
        if runs_on and self.printer.text(value.a) == target:
            if not isinstance(value, tirx.Add):
                helper = running_helper(str(value.ty.dtype), is_max=isinstance(value, tirx.Max))
                return f"{target} = {self.printer.helped(helper, value.a, value.b)[0]};"
            if str(value.ty.dtype) == "float32" and isinstance(value.b, tirx.Mul):  # as float kernels do
                a, b = self.printer.text(value.b.a), self.printer.text(value.b.b)
                self.printer.headers.add("tvm_ext_kernels.h")
                return f"{target} = TVM_EXT_FMA({a}, {b}, {target});"
            if wide and not self.printer.wraps(value):
                return f"{target} += {self.printer.text(value.b)};"
        return f"{target} = {self.printer.text(value)};"

    def _loop(self, loop: tirx.For) -> list[str]:
        if loop.kind == tirx.ForKind.THREAD_BINDING:
            raise CannotLowerError("a loop bound to threads")
        if (four := narrow_block(loop)) is not None:
            return [self._narrowed(four)]
        rows = self._rows(loop)
        outer = set(self.taken)
        c_type = self.printer.c_type(str(loop.loop_var.ty.dtype))
        begin, end = self.printer.operand(loop.min), self._end(loop)
        name = self._name(loop.loop_var)
        self.printer.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        step = f"{name} += {self.printer.text(loop.step)}" if loop.step is not None else f"++{name}"
        is_once = self.printer.analyzer.can_prove_equal(loop.extent, 1) and loop.step is None
        once, many = f"const {c_type} {name} = {begin};", f"for ({c_type} {name} = {begin}; {name} < {end}; {step}) {{"
        around, self.around = self.around, self.around.inside(loop)
        inner = self._indented(loop.body)
        if is_once:
            named = any(re.search(rf"\b{name}\b", line) for line in inner)
            lines = [*rows, "{", *([f"    {once}"] if named else []), *inner, "}"]
        else:
            lines = [*rows, many, *inner, "}"]
        self.around = around
        self.taken = outer
        return lines

    def _narrowed(self, four: NarrowBlock) -> str:
        one = truncate_helper("float32", "int32")
        self.printer.helpers[one.name] = one
        self.printer.headers |= {"math.h", "stdbool.h"}
        target = f"&{self.printer.element(four.buffer, [four.place])}"
        values = ", ".join(map(self.printer.text, four.values))
        return f"{self.printer.calls(narrow_helper(four.dtype), f'{values}, {target}')[0]};"

    def _rows(self, loop: tirx.For) -> list[str]:
        """Return pointers to the rows that the loop reads through tables."""
        lines: list[str] = []
        for row in rows_of(loop, self.around):
            if row_of(self.printer.rows, row.buffer, row.index) is not None:
                continue
            begin = self.printer.element(row.buffer, [row.begin])
            if begin not in self.row_names:
                self.row_names[begin] = unique(f"{self.printer.names[row.buffer]}_row", self.taken)
                c_type = self.printer.c_type(str(row.buffer.ty.dtype))
                lines.append(f"const {c_type} *const {self.row_names[begin]} = &{begin};")
            named = NamedRow(name=self.row_names[begin], index=row.index, rest=row.rest)
            self.printer.rows[row.buffer, tvm_ffi.structural_hash(row.index)] = named
        return lines

    def _end(self, loop: tirx.For) -> str:
        end = self.printer.analyzer.simplify(tirx.Add(loop.min, loop.extent))
        return self.printer.operand(end, at_least=RELATION + 1)

    def _branch(self, branch: tirx.IfThenElse) -> list[str]:
        lines = [f"if ({self.printer.text(branch.condition)}) {{", *self._indented(branch.then_case)]
        if branch.else_case is not None:
            lines += ["} else {", *self._indented(branch.else_case)]
        return [*lines, "}"]

    def _allocation(self, buffer: Var) -> list[str]:
        if buffer in self.storage.offsets or buffer not in self.storage.scalars | self.storage.arrays:
            return []
        c_type = self.printer.c_type(str(buffer.ty.dtype))
        if buffer in self.storage.scalars:
            self.printer.scalars.add(buffer)
            return [f"{c_type} {self._name(buffer)} = {number(0, str(buffer.ty.dtype))};"]
        extent = int(buffer.ty.shape[0])
        return [f"{c_type} {self._name(buffer)}[{extent}];"]

    def _initialises(self, statement: tirx.Stmt | None, buffer: Var) -> bool:
        return (
            buffer in self.storage.scalars
            and isinstance(statement, tirx.BufferStore)
            and self._owner(statement.buffer).same_as(buffer)
        )

    def _initialised(self, buffer: Var, store: tirx.BufferStore) -> str:
        value = self.printer.text(store.value)
        self.printer.scalars.add(buffer)
        return f"{self.printer.c_type(str(buffer.ty.dtype))} {self._name(buffer)} = {value};"

    def _evaluation(self, value: Expr) -> list[str]:
        if not isinstance(value, Call):
            return []
        name = value.op.name.rpartition(".")[2]
        if name in IGNORED_CALLS:
            return []
        called = getattr(value.args[0], "value", "") if value.args else ""
        raise CannotLowerError(f"a call of TVM's runtime ({called or name})")

    def _indented(self, statement: tirx.Stmt) -> list[str]:
        return [block(line) for line in self._sequence(_flat(statement))]

    def _name(self, var: Var) -> str:
        name = unique(identifier(var.name.removeprefix("T_")), self.taken)
        self.printer.names[var] = name
        return name

    def _owner(self, buffer: Var) -> Var:
        return self.storage.aliases.get(buffer, buffer)

    def _alias(self, buffer: Var) -> None:
        owner = self._owner(buffer)
        self.printer.names[buffer] = self.printer.names[owner]
        if owner in self.printer.scalars:
            self.printer.scalars.add(buffer)


def _flat(statement: tirx.Stmt) -> list[tirx.Stmt]:
    if not isinstance(statement, tirx.SeqStmt):
        return [statement]
    return [inner for part in statement.seq for inner in _flat(part)]
