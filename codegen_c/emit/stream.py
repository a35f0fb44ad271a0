"""Streamed inputs and outputs as C: the struct of the application's functions, and the calls of them."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import Kept
from codegen_c.kernels.shared.window import slot
from codegen_c.program.interface import Interface, Port
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Tensor


@dataclass(frozen=True, kw_only=True)
class RowBounds:
    """Rows [begin, end) as C expressions, and their number. first: the first row if it is a constant."""

    begin: str
    end: str
    count: int
    first: int | None = None


def streamed(interface: Interface) -> list[tuple[str, Port]]:
    """Return ("read" or "write", port) for every streamed input and output."""
    ports = [*(("read", port) for port in interface.inputs), *(("write", port) for port in interface.outputs)]
    return [(direction, port) for direction, port in ports if port.stream]


def callback_signature(direction: str, port: Port, name: str) -> str:
    """Return `int32_t name(void *context, T *rows, int32_t row_begin, int32_t row_end)`; rows of outputs are const.

    If an input is read in strips, the columns follow as parameters.
    """
    const = "const " if direction == "write" else ""
    columns = ", int32_t column_begin, int32_t column_end" if port.stream and port.stream.strips else ""
    return f"int32_t {name}(void *context, {const}{port.c_type} *rows, int32_t row_begin, int32_t row_end{columns})"


def describe_strips(port: Port) -> str:
    """Return a sentence on an input whose rows are read more than once; empty for other inputs."""
    strips = port.stream.strips if port.stream else ()
    if not strips:
        return ""
    columns = ", ".join(f"[{begin}, {end})" for begin, end in strips)
    elements = sum(end - begin for begin, end in strips) / port.num_columns
    times_asked = f"{len(strips)} times" if len(strips) > 1 else "once"
    return (
        f"A run reads its rows {times_asked}, each time from the first row on, and only these columns: {columns}. "
        f"These are {elements:.2f} times its elements; the elements must not change during a run."
    )


def describe_rows(port: Port) -> str:
    """Return a text such as `224 rows of [224][3] elements`, in the order of axes in which rows are passed."""
    stream = port.stream
    assert stream is not None, "the port is streamed"
    shape = [port.shape[axis] for axis in stream.layout]
    row = "".join(f"[{extent}]" for extent in (shape[2:] if stream.rows > 1 else shape)) or "one element"
    return f"{stream.rows} rows of {row}" if stream.rows > 1 else f"one row of {row}"


def callback_lines(
    call: KernelCall,
    port: Port,
    tensor: Tensor,
    where: str,
    rows: RowBounds,
    under_way: int | None,
    *,
    goes_on: bool,
    failed: str,
) -> list[str]:
    """Return the lines that pass some rows to or from a function of the application.

    tensor: in the program; where: C expression of its first element. under_way: number of the last DMA transfer that
    may still be running and must end before a failed run returns. goes_on: a failed run continues to its end, because
    other processors wait for its signals: it calls no function any more, and missing input rows become zeros, which are
    valid elements of any input, also of indices. failed: C expression of the status that a failed run returns.
    """
    stream, callback = port.stream, call.implementation.callback
    assert stream is not None and callback is not None, "the call streams a port"
    row_elements = tensor.num_elements // stream.rows

    kept = Kept(stored=tensor.ring.stored, shift=tensor.ring.shift) if tensor.ring else None
    asked = callback.columns or (0, port.num_columns) if stream.strips else ()
    columns = "".join(f", {column}" for column in asked)

    def hand_over(begin: str, end: str, count: int, first_row: int | None) -> list[str]:
        if first_row is None:
            place = times(slot(begin, kept), row_elements)
        else:
            place = str((kept.slot(first_row) if kept else first_row) * row_elements)
        first = where if place == "0" else f"&{where}[{place}]"
        text = f"status = io->{callback.direction}_{port.name}(io->context, {first}, {begin}, {end}{columns});"
        lines = wrap(text, 104, subsequent_indent="    ", break_long_words=False)
        if goes_on:
            zeros = f"(void)memset({first}, 0, {count * row_elements * tensor.element_bytes}u);"
            absent = ["if (status != 0) {", block(zeros), "}"] if callback.direction == "read" else []
            return ["if (status == 0) {", block(lines), "}", *absent]
        wait = [] if under_way is None else [f"tvm_ext_dma_wait({under_way}u);"]
        on_error = ["if (status != 0) {", block([*wait, f"return {failed};"]), "}"]
        return [*lines, *on_error]

    if not tensor.ring or stream.rows_per_call > 1 or rows.count == 1:
        return hand_over(rows.begin, rows.end, rows.count, rows.first)
    # The rows of one call may not be contiguous in a ring.
    return [
        f"for (int32_t row = {rows.begin}; row < {rows.end}; ++row) {{",
        block(hand_over("row", "row + 1", 1, None)),
        "}",
    ]
