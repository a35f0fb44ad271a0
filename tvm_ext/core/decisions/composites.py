"""Facts about composites and regions that passes form and code generation reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ext.core.decisions.decision import Decision, attribute

_PREFIX = "tvm_ext."


def _kind(name: Any) -> str:
    return str(name).removeprefix(_PREFIX)


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def _axes(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


@dataclass(frozen=True, kw_only=True)
class CompositeKind(Decision):
    """Kind of a composite, `nn_conv2d`; empty for other functions. TVM knows composites by these names."""

    kind: str = attribute("Composite", "", read=_kind, write=lambda kind: f"{_PREFIX}{kind}")
    is_primitive: bool = attribute("Primitive", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class SourceNodes(Decision):
    """The model's own names of the operators in a composite."""

    nodes: tuple[str, ...] = attribute("source_nodes", (), read=_strings, write=list)


@dataclass(frozen=True, kw_only=True)
class StorageLayout(Decision):
    """Axes of the model's tensor in the order in which a composite's result keeps them; empty where it is the same."""

    axes: tuple[int, ...] = attribute("layout", (), read=_axes, write=list)


@dataclass(frozen=True, kw_only=True)
class ModelTensor(Decision):
    """The model's own name of the tensor that a composite's result holds; empty where it is the variable's name."""

    name: str = attribute("tensor", "")


@dataclass(frozen=True, kw_only=True)
class PrimFuncs(Decision):
    """Functions that `call_tir` of a composite names, so that it is whole without its module: GlobalVar -> PrimFunc."""

    functions: Mapping[Any, Any] | None = attribute("prim_funcs", None, read=dict, write=dict)


@dataclass(frozen=True, kw_only=True)
class QuantizedRounding(Decision):
    """The meaning of quantized arithmetic: one rounding of an exact result (`onnx`), or TensorFlow Lite's own."""

    meaning: str = attribute("rounding", "onnx")


@dataclass(frozen=True, kw_only=True)
class OwnRange(Decision):
    """Arithmetic of a call of `tvm_ext.range_quantize`.

    meaning: `onnx`, `tflite_asymmetric` or `tflite_symmetric`. axes: the first ones of its operand, each index of which
    has a range of its own; without any the whole tensor has one.
    """

    meaning: str = attribute("range_meaning", "")
    axes: int = attribute("range_axes", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class RangePart(Decision):
    """Part of ONNX's DynamicQuantizeLinear that a PrimFunc computes; empty for all others.

    `high` and `low` of a tensor, `scale` of these, `zero_point` of the low end and the scale.
    """

    part: str = attribute("range_part", "")


@dataclass(frozen=True, kw_only=True)
class StoredWeights(Decision):
    """Bits in which the weights of a quantized composite are stored; its constants stay int8."""

    bits: int = attribute("weight_bits", 8, read=int)


@dataclass(frozen=True, kw_only=True)
class Region(Decision):
    """A function that a code generator compiles whole: the generator, and the symbol of its C function.

    parameters: the model's own names of the tensors that come in; empty where they are the parameters' names.
    """

    codegen: str = attribute("Codegen", "")
    parameters: tuple[str, ...] = attribute("parameters", (), read=_strings, write=list)


@dataclass(frozen=True, kw_only=True)
class Symbol(Decision):
    """Name under which TVM's runtime finds a function; empty for a private one."""

    name: str = attribute("global_symbol", "")


@dataclass(frozen=True, kw_only=True)
class InputCount(Decision):
    """Parameters of a model's function that are inputs; TVM's importers put weights behind them. None: all."""

    count: int | None = attribute("num_input", None, read=int)
