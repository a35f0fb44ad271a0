"""Sizes beyond which a model is refused by its shapes, before any memory or time is spent on it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.sizes import parse_size, size_problem

_LARGEST = 1 << 62
_MOST_ITERATIONS = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper limits for a model. A few bytes of a file can request any size, which no microcontroller could hold.

    tensor_bytes: of one tensor, input, weight or result.
    weights_bytes: of all weights that a file holds, wherever they lie.
    folded_bytes: of all constants that are computed at import, beside twice the weights of the file.
    rank: axes of a tensor.
    nodes: operators, once functions and loops are written out.
    operands: inputs, or outputs, of one operator.
    fields: of an ONNX file's protobuf messages: what nodes, attributes, tensors and shapes are written with.
    text_bytes: of all names, documentation and metadata of a file, and of lists in attributes.
    iterations: of a loop that data end, if its model gives no bound; 0 refuses such a loop. A run ends the loop there.

    Those in bytes are numbers; `Limits().changed(["tensor_bytes=1GiB"])` takes them as text.
    """

    tensor_bytes: int = 512 << 20
    weights_bytes: int = 1 << 30
    folded_bytes: int = 256 << 20
    rank: int = 16
    nodes: int = 10_000
    operands: int = 4096
    fields: int = 1_000_000
    text_bytes: int = 64 << 20
    iterations: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least, most = (0, _MOST_ITERATIONS) if name == "iterations" else (1, _LARGEST)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadOptions(f"limit {name} = {value!r}: give a whole number from {least} to {most}.")

    def changed(self, texts: Iterable[str]) -> Limits:
        """Return the limits with some changed: `["tensor_bytes=1GiB", "nodes=20000"]`. Raises BadOptions."""
        names = [field.name for field in fields(self)]
        values: dict[str, int] = {}
        for text in texts:
            name, _, size = text.partition("=")
            found = parse_size(size)
            if name not in names:
                raise BadOptions(f"limit {text!r}: unknown name; the limits are {', '.join(names)}.")
            if not name.endswith("_bytes") and not size.strip().isdecimal():
                raise BadOptions(f"limit {text!r} is not of the form {name}={2 * getattr(self, name) or 100}.")
            if found is None:
                raise BadOptions(f"limit {text!r} is not of the form {name}=1GiB: {size!r} {size_problem(size)}")
            if name in values:
                raise BadOptions(f"limit {name} is given twice; give it once.")
            values[name] = found
        return replace(self, **values)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Limits:
        """Return the limits that `to_json` wrote, with defaults for missing limits. Raises BadOptions."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError):
            raise BadOptions(f"limits {text[:80]!r} are not in the form of Limits.to_json.") from None

    def excess(self, name: str, value: int) -> str | None:
        """Return why a value is too large, and the way out, or None where it is not."""
        limit = int(getattr(self, name))
        if value <= limit:
            return None
        unit = " B" if name.endswith("_bytes") else ""
        return f"{_number(value)}{unit} is more than the limit {name} = {limit}{unit}; {way_out(name)}"

    def excess_of_tensor(self, shape: Sequence[int], element_bytes: int) -> str | None:
        """Return why a tensor is too large, by its rank or its bytes, or None where it is not."""
        by_rank = self.excess("rank", len(shape))
        if by_rank:
            return f"a rank of {by_rank}"
        # An axis without elements counts as one element, because products over the other axes must not overflow either.
        by_bytes = self.excess("tensor_bytes", math.prod(max(extent, 1) for extent in shape) * element_bytes)
        return by_bytes and f"{text_of(shape)} of {element_bytes} B an element: {by_bytes}"


def way_out(name: str) -> str:
    """Return advice on raising a limit, as a clause."""
    return f"raise it with --limit {name}=..., in Python Limits({name}=...)"


def text_of(shape: Sequence[int]) -> str:
    """Return a shape as text, such as `[1, 3, 96, 96]`; only its first eight axes are shown."""
    shown = [str(extent) for extent in shape[:8]] + (["..."] if len(shape) > 8 else [])
    return f"[{', '.join(shown)}]"


def _number(value: int) -> str:
    """Return a number in full below 2^64, or else the power of two that it exceeds."""
    return str(value) if value < 1 << 64 else f"over 2^{value.bit_length() - 1}"
