"""Operators that an archive may name: ATen's on tensors, those of PT2E quantization, and arithmetic on sizes.

torch looks up a target by its dotted name below `torch` and calls what it finds, whatever that is: `torch.ops.aten`
alone has functions that write files (save) and map them (from_file), beside all of TorchScript's on strings, lists and
dictionaries. A name is judged before torch is imported, and its declaration before anything is called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tvm_ext.frontends.pytorch.plain_json import Damaged
from tvm_ext.frontends.pytorch.symbolic_sizes import (
    MOST_BITS,
    SYMBOL_BITS,
    bits_of_constant,
    bits_of_power,
    bits_of_sum,
)

_ATEN = re.compile(
    r"torch\.ops\.aten\.(?:(?!from_file\.|save\.)(?!__)[A-Za-z_]\w*|__i?(?:and|or|xor|lshift|rshift)__)\.(?!__)\w+"
)
_QUANTIZED = re.compile(
    r"torch\.ops\.quantized_decomposed\."
    r"(?:(?:de)?quantize_per_tensor\.(?:default|tensor)|(?:de)?quantize_per_channel\.default)"
)
_DYNAMIC = re.compile(r"torch\.ops\.quantized_decomposed\.(?:choose_qparams|\w+_per_token)")
_LARGEST = (*(f"_operator.{name}" for name in "eq ne le ge lt gt neg pos floordiv mod and_ or_".split()),
            *(f"math.{name}" for name in "trunc floor ceil".split()),
            *(f"torch.sym_{name}" for name in "not int float ite max min sqrt".split()))  # fmt: skip
_SYMBOLIC = frozenset((*_LARGEST, *(f"_operator.{name}" for name in "add sub mul truediv pow".split())))
# What ATen computes from sizes and from what a tensor holds; the number of elements is a product of sizes.
_ATEN_NUMBERS = re.compile(r"(?:sym_(?:size|stride|numel|storage_offset|is_contiguous)|item|_local_scalar_dense)\.\w+")
_ATEN_CHECKS = re.compile(r"(?:_assert_(?:scalar|async|tensor_metadata)|sym_constrain_range(?:_for_size)?)\.\w+")
_NUMEL_BITS = 16 * SYMBOL_BITS
# Strings that choose one of several forms of an operator; other strings are texts, or names of files.
_CHOICES = frozenset(
    "activation approximate assert_msg driver equation indexing interpolation mode norm ord p pad_mode padding "
    "padding_side reduce rounding_mode side UPLO".split()
)
_TYPE = re.compile(r"(?:List\[|Optional\[)*(?:Tensor|int|bool|float|number|complex|str|Device|Generator)\]*")


def refusals(targets: Collection[str]) -> dict[str, str]:
    """Targets whose names are not taken, with the reason, in order."""
    return {
        target: _reason(target)
        for target in sorted(targets)
        if not (target in _SYMBOLIC or _ATEN.fullmatch(target) or _QUANTIZED.fullmatch(target))
    }


def _reason(target: str) -> str:
    if _DYNAMIC.match(target):
        return "scales that each input decides (dynamic quantization) are not compiled; quantize statically"
    if "quantized_decomposed" in target or target.startswith("torch.ops.torchao."):
        return "of quantized operators, those of a scale for each tensor or channel can be compiled"
    return "only operators of ATen can be compiled"


def declaration_refusals(torch: Any, targets: Collection[str]) -> dict[str, str]:
    """Targets of ATen that this torch lacks, or that do more than compute tensors from tensors and numbers."""
    found = {}
    for target in sorted(target for target in targets if _ATEN.fullmatch(target)):
        name, overload = target.removeprefix("torch.ops.aten.").split(".")
        packet = getattr(torch.ops.aten, name, None)
        operator = getattr(packet, overload, None) if isinstance(packet, torch._ops.OpOverloadPacket) else None
        if not isinstance(operator, torch._ops.OpOverload):
            found[target] = f"torch {torch.__version__} has no such operator"
        elif not _is_plain(f"{name}.{overload}", operator._schema):
            found[target] = "only operators of ATen can be compiled that compute tensors from tensors and numbers"
    return found


def _is_plain(name: str, schema: Any) -> bool:
    arguments = [(argument.name, str(argument.type)) for argument in schema.arguments]
    returned = [str(result.type) for result in schema.returns]
    if any(not _TYPE.fullmatch(kind) or ("str" in kind and label not in _CHOICES) for label, kind in arguments):
        return False
    if _ATEN_NUMBERS.fullmatch(name) or _ATEN_CHECKS.fullmatch(name):
        return True
    return bool(returned) and all(kind in ("Tensor", "List[Tensor]") for kind in returned)


def check_sizes_computed(nodes: Sequence[Mapping[str, Any]]) -> None:
    """Bound the numbers that a graph computes from sizes, which Python computes without limit. Raises Damaged."""
    bits: dict[str, int] = {}
    for at, node in enumerate(nodes):
        target, where = node["target"], f"graph_module.graph.nodes[{at}]"
        if target in _SYMBOLIC:
            found = _bits(target, [argument["arg"] for argument in node["inputs"]], bits, where)
            if found > MOST_BITS:
                raise Damaged(f"{where}: a size may take {found} bits, more than {MOST_BITS}")
        else:
            found = _NUMEL_BITS if "numel" in target or "item" in target else SYMBOL_BITS
        for output in node["outputs"]:
            for value in output.values():
                if isinstance(value, dict) and "as_name" in value:
                    bits[value["as_name"]] = found


def _bits(target: str, arguments: Sequence[Mapping[str, Any]], known: Mapping[str, int], where: str) -> int:
    """Bits of a result that Python computes from numbers and symbols."""
    values = [_number(argument, where) for argument in arguments]
    if not values:
        raise Damaged(f"{where}: {target} has no arguments")
    given = [known.get(value, SYMBOL_BITS) if isinstance(value, str) else bits_of_constant(value) for value in values]
    if target == "_operator.pow":
        exponent = values[-1]
        if len(values) != 2 or not isinstance(exponent, int):
            raise Damaged(f"{where}: the exponent of a size is no whole number")
        return bits_of_power(given[0], exponent, where)
    if target in ("_operator.add", "_operator.sub"):
        return bits_of_sum(given)
    return sum(given) if target in ("_operator.mul", "_operator.truediv") else max(given)


def _number(argument: Mapping[str, Any], where: str) -> int | float | str:
    """A number, or the name of a symbolic one. Raises Damaged for anything else."""
    ((kind, value),) = argument.items()
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        ((kind, value),) = value.items()
    if kind == "as_name" or kind in ("as_int", "as_float", "as_bool"):
        return value
    raise Damaged(f"{where}: arithmetic on sizes takes numbers, not {kind}")
