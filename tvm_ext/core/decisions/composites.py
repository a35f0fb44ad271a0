"""Decisions about fused operators: what they are, how they run, and the memory and processor of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ext.core.decisions.decision import Decision, attribute, json_attribute
from tvm_ext.core.row_access import Columns

_PREFIX = "tvm_ext."


def _kind(name: Any) -> str:
    return str(name).removeprefix(_PREFIX)


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


@dataclass(frozen=True, kw_only=True)
class CompositeKind(Decision):
    """Kind of a composite, such as `nn_conv2d`; empty for other functions. TVM recognizes composites by these names."""

    kind: str = attribute("Composite", "", read=_kind, write=lambda kind: f"{_PREFIX}{kind}")
    is_primitive: bool = attribute("Primitive", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class SourceNodes(Decision):
    """The model's own names of the operators in a composite."""

    nodes: tuple[str, ...] = attribute("source_nodes", (), read=_strings, write=list)


@dataclass(frozen=True, kw_only=True)
class StorageLayout(Decision):
    """Axes of the model's tensor in the order in which a composite stores its result; empty for the model's order."""

    axes: tuple[int, ...] = attribute("layout", (), read=_ints, write=list)


@dataclass(frozen=True, kw_only=True)
class ModelTensor(Decision):
    """The model's own name of the tensor that a composite's result holds; empty where the variable has that name."""

    name: str = attribute("tensor", "")


@dataclass(frozen=True, kw_only=True)
class PrimFuncs(Decision):
    """Functions that `call_tir` of a composite names, so that the composite is complete without its module."""

    functions: Mapping[Any, Any] | None = attribute("prim_funcs", None, read=dict, write=dict)


@dataclass(frozen=True, kw_only=True)
class QuantizedRounding(Decision):
    """Rounding of quantized arithmetic: a single rounding of the exact result (`onnx`), TensorFlow Lite Micro's two
    (`tflite`), or the float32 products of LiteRT's default kernels (`litert`).
    """

    meaning: str = attribute("rounding", "onnx")


@dataclass(frozen=True, kw_only=True)
class OwnRange(Decision):
    """Arithmetic of a call of `tvm_ext.range_quantize`.

    meaning: `onnx`, `tflite_asymmetric` or `tflite_symmetric`.
    axes: the number of leading axes of its operand for which each index has its own range; 0 gives the whole tensor a
    single range.
    """

    meaning: str = attribute("range_meaning", "")
    axes: int = attribute("range_axes", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class RangePart(Decision):
    """Part of ONNX's DynamicQuantizeLinear that a PrimFunc computes; empty for all other PrimFuncs.

    The parts are `high` and `low` of a tensor, `scale` of both, and `zero_point` of the low end and the scale.
    """

    part: str = attribute("range_part", "")


@dataclass(frozen=True, kw_only=True)
class RepeatedStep(Decision):
    """Description of a PrimFunc that runs a step for each element of its sequences; empty for all other PrimFuncs.

    step: a module as TVM's JSON text, with a Relax function `main` and the PrimFuncs that it calls. It is text because
    TVM cannot print a module in an attribute. The step takes the states, one element of each sequence, then parameters
    that are equal in all steps. It returns the new states, then one element of each stacked result. count: number of
    steps. is_backward: the last element is processed first.
    has_index: the step takes the number of the iteration, an int64, ahead of its states.
    is_open: data end the loop, after at most `count` steps. The step returns a bool ahead of its other results: whether
    another step runs.
    """

    step: str = attribute("repeated_step", "")
    count: int = attribute("repeated_count", 0, read=int)
    num_states: int = attribute("repeated_states", 0, read=int)
    num_sequences: int = attribute("repeated_sequences", 0, read=int)
    is_backward: bool = attribute("repeated_backward", False, read=bool)
    has_index: bool = attribute("repeated_index", False, read=bool)
    is_open: bool = attribute("repeated_open", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer(Decision):
    """Recurrent cell that a PrimFunc with a `RepeatedStep` computes; empty for all other PrimFuncs.

    cell: `lstm`, `gru` (which resets the product of the hidden state), `gru_resets_first` (which resets the hidden
    state), `rnn_tanh` or `rnn_relu`; each with its standard activations, without peepholes and limits.
    The PrimFunc takes the states [B, H], of an LSTM the hidden state and the cell, and the sequence [T, B, C]; then
    weights as in ONNX, with ONNX's order of the G gates: [1, G H, C], [1, G H, H], and biases [1, 2 G H] if has_biases;
    then constants of the step. It returns the next states, and the hidden state of each step, [T, B, H].
    cell_limit: the cell of an LSTM is clipped to [-cell_limit, cell_limit]; 0 for no limit.
    """

    cell: str = attribute("recurrent_cell", "")
    has_biases: bool = attribute("recurrent_biases", False, read=bool)
    cell_limit: float = attribute("recurrent_cell_limit", 0.0, read=float)


@dataclass(frozen=True, kw_only=True)
class IntegerRecurrentLayer(Decision):
    """Arithmetic of a PrimFunc that is a recurrent layer on integers; empty for all other PrimFuncs.

    cell: a key of `RECURRENT_CELLS`, which describes states and products.
    The PrimFunc takes the states [B, H], the sequence int8[T, B, C], for each product its weights int8[rows, depth] and
    its biases int32[rows], then the multipliers int32[R] of all rows, and the table int16[257] of the sigmoid. It
    returns the next states, and the hidden state of each step, int8[T, B, H].
    left: sums are multiplied by 2^left ahead of their multipliers. state_power: the wide state has units of
    2^-state_power. hidden_factor: (multiplier, shift) from results, in units of 2^-15 or of the wide state of a GRU, to
    the int8 hidden state. zero_point: of the hidden state. limit: bound of an LSTM's cell; 0 for none. is_backward: the
    last element of the sequence is processed first.
    """

    cell: str = attribute("integer_cell", "")
    left: int = attribute("integer_left", 0, read=int)
    state_power: int = attribute("integer_state_power", 0, read=int)
    hidden_factor: tuple[int, ...] = attribute("integer_hidden_factor", (), read=_ints, write=list)
    zero_point: int = attribute("integer_zero_point", 0, read=int)
    limit: int = attribute("integer_limit", 0, read=int)
    is_backward: bool = attribute("integer_backward", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class QuantizedLstm(Decision):
    """Arithmetic of a PrimFunc that is TensorFlow Lite's LSTM on integers; empty for all other PrimFuncs.

    The PrimFunc takes the hidden state int8[B, H], the cell int16[B, H] and the sequence int8[T, B, C]; then the
    matrices of the input int8[H, C] and those of the hidden state int8[H, H], of the input, forget, cell and output
    gate; their biases int32[H]; and a table of the sigmoid. It returns the next hidden state and cell, and the outputs
    int8[T, B, H].

    factors: fixed-point factors as (mantissa, shift) in a row: from the sums of the input to a gate, four; from those
    of the hidden state, four; of the forget gate times the cell, of the input gate times the cell gate, and of the
    output gate times the cell's tanh. zero_points: of the input and of the hidden state. cell_power: the scale of the
    cell is 2^cell_power. clip: bound of the cell; 0 for none.
    """

    factors: tuple[int, ...] = attribute("lstm_factors", (), read=_ints, write=list)
    zero_points: tuple[int, ...] = attribute("lstm_zero_points", (), read=_ints, write=list)
    cell_power: int = attribute("lstm_cell_power", 0, read=int)
    clip: int = attribute("lstm_clip", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class QuantizedSvdf(Decision):
    """Arithmetic of a PrimFunc that is a part of TensorFlow Lite's SVDF on integers; empty for all other PrimFuncs.

    part: `features` of an input int8[B, C] by weights int8[F, C], which become int8 or int16[B, 1, 1, F]; or `sum` of
    a window [B, M, 1, F] by weights [F, M] and biases int32[U], which become int8[B, U].
    factor: from sums of products to the result, as (mantissa, shift). zero_points: of the input and of the result.
    """

    part: str = attribute("svdf_part", "")
    factor: tuple[int, ...] = attribute("svdf_factor", (), read=_ints, write=list)
    zero_points: tuple[int, ...] = attribute("svdf_zero_points", (), read=_ints, write=list)


@dataclass(frozen=True, kw_only=True)
class KeptWeights(Decision):
    """Whether a composite's kernel stores its weights in no more bytes than the model does."""

    is_set: bool = attribute("kept_weights", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class StoredWeights(Decision):
    """Number of bits in which the weights of a quantized composite are stored. Its constants stay int8."""

    bits: int = attribute("weight_bits", 8, read=int)


@dataclass(frozen=True, kw_only=True)
class Region(Decision):
    """A function that a code generator compiles as a whole, with the generator and the symbol of its C function.

    parameters: the model's own names of the input tensors; empty where the parameters have these names.
    """

    codegen: str = attribute("Codegen", "")
    parameters: tuple[str, ...] = attribute("parameters", (), read=_strings, write=list)


@dataclass(frozen=True, kw_only=True)
class RegionBuild(Decision):
    """The platform and the options for which a region is compiled inside TVM, as JSON; empty for other functions.

    dump: folder into which its C is written; empty for none.
    """

    platform: str = attribute("platform", "")
    options: str = attribute("build_options", "")
    dump: str = attribute("dump", "")


@dataclass(frozen=True, kw_only=True)
class Symbol(Decision):
    """Name by which TVM's runtime finds a function; empty for a private function."""

    name: str = attribute("global_symbol", "")


@dataclass(frozen=True, kw_only=True)
class InputCount(Decision):
    """Number of parameters of a model's function that are inputs; None for all. TVM's importers append weights."""

    count: int | None = attribute("num_input", None, read=int)


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class CustomUse(Decision):
    """A call of a custom operator: its name, the call as written in the file, and the C code for it.

    call, code: as `codegen_c/custom/contract.py` writes them.
    states: names of the states that it keeps.
    num_tables: the number of last arguments that are tables for the C code. The arguments ahead of them are the states.
    """

    operator: str = attribute("custom_operator", "")
    call: str = attribute("custom_call", "")
    code: Mapping[str, Any] | None = json_attribute("custom_code", None, read=_as_is)
    states: tuple[str, ...] = attribute("custom_states", (), read=_strings, write=list)
    num_tables: int = attribute("custom_tables", 0, read=int)


def _columns(value: Any) -> Columns:
    begin, end = value
    return int(begin), int(end)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value))


@dataclass(frozen=True, kw_only=True)
class RowSplit(Decision):
    """Neighbouring composites of one `sequence` run row by row in series. A composite without a sequence runs whole.

    rows_per_call: rows of the result that are computed at a time.
    input_rows: rows that the last composite of a sequence adds up as they arrive; 0 where it computes by rows of its
    result.
    """

    sequence: str = attribute("sequence", "")
    rows_per_call: int = attribute("rows_per_call", 0, read=int)
    input_rows: int = attribute("input_rows", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class ColumnStrip(Decision):
    """Columns [begin, end) of an image, where a composite computes only these; None for all columns."""

    columns: Columns | None = attribute("columns", None, read=_columns, write=list)


@dataclass(frozen=True, kw_only=True)
class JoinedTiles(Decision):
    """Number of tiles of output channels whose results a composite joins; 0 for other composites."""

    tiles: int = attribute("joined_tiles", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class StreamDirection(Decision):
    """Marks a composite through which an input arrives (`read`) or an output leaves (`write`), by rows.

    rereads: whether rows of the input may be requested more than once.
    """

    direction: str = attribute("stream", "")
    rereads: bool = attribute("rereads", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class PortsOutside(Decision):
    """Whether main's inputs and outputs lie in memory of the application, take no bytes, and are never overwritten."""

    is_set: bool = attribute("ports_outside", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class PlacedPorts(Decision):
    """Memory of each input and output of main, in order; empty for the platform's default memory.

    `SEARCHED_MEMORY` leaves the choice to the search for memories, which writes the memory that it has found.
    """

    inputs: tuple[str, ...] = json_attribute("placed_inputs", (), read=_texts)
    outputs: tuple[str, ...] = json_attribute("placed_outputs", (), read=_texts)


@dataclass(frozen=True, kw_only=True)
class OperatorMemories(Decision):
    """Memories of a composite's result, weights and scratch; empty for the platform's default memory.

    weights_ahead: number of operators ahead of this one at which the copy of its weights to `weights_memory` starts.
    """

    memory: str = attribute("memory", "")
    weights_memory: str = attribute("weights_memory", "")
    weights_ahead: int = attribute("weights_ahead", 0, read=int)
    scratch_memory: str = attribute("scratch_memory", "")


@dataclass(frozen=True, kw_only=True)
class MoveTarget(Decision):
    """The memory that a call of `tvm_ext.move` copies its operand to.

    within: number of operators after which the copy is awaited at the latest; None waits only at the first reader.
    processor: the core that copies where no DMA does; empty for the platform's first processor.
    """

    memory: str = attribute("memory", "")
    within: int | None = attribute("within", None, read=int)
    processor: str = attribute("copied_by", "")


@dataclass(frozen=True, kw_only=True)
class OperatorProcessor(Decision):
    """Name of the platform's processor that runs a composite; empty for the platform's first processor."""

    processor: str = attribute("processor", "")


@dataclass(frozen=True, kw_only=True)
class ProcessorPlacement(Decision):
    """Outcome of placing the operators of `main` on processors, as in report.json; None without placement."""

    report: Mapping[str, Any] | None = json_attribute("processor_placement", None, read=_as_is)
