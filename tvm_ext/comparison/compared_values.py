"""Values that the steps of a package write, from its report, whose contents are not trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from codegen_c.operators.kinds import Quantization
from codegen_c.program.tensors import DTYPES, Strip, Tensor
from tvm_ext.core.errors import BadPackage

_MOVES = ("wait", "dma", "copy")
_IDENTIFIER = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ComparedValue:
    """A tensor after the last step that writes it.

    step, step_name, nodes: index and name of the step, and the model's operators in it.
    absent: why the tensor's bytes cannot be read after the step; empty if they can.
    only_moves: True for a step that copies or waits for copies and computes nothing.
    """

    step: int
    step_name: str
    nodes: tuple[str, ...]
    tensor: Tensor
    absent: str = ""
    only_moves: bool = False


def compared_values(report: Mapping[str, Any], folder: Path) -> list[ComparedValue]:
    """Return the values in the order of the last steps that write them, without states.

    Raises BadPackage for a damaged report.
    """
    try:
        kept = {str(state["c_name"]) for state in report["states"]}
        values: dict[str, ComparedValue] = {}
        for index, step in enumerate(cast("list[dict[str, Any]]", report["steps"])):
            for output in step["outputs"]:
                value = ComparedValue(
                    step=index, step_name=str(step["name"]), nodes=tuple(map(str, step["source_nodes"])),
                    tensor=_tensor(output), absent=_absent(output), only_moves=step["kernel"] in _MOVES,
                )  # fmt: skip
                if value.tensor.name not in kept:
                    values.pop(value.tensor.name, None)
                    values[value.tensor.name] = value
    except (KeyError, TypeError, ValueError):
        raise BadPackage(
            f"{folder / 'report.json'}: does not describe what steps write. Compile the model again."
        ) from None
    return list(values.values())


def _tensor(output: Mapping[str, Any]) -> Tensor:
    """Return the tensor of a report's entry. Raises KeyError, TypeError or ValueError for a damaged entry."""
    name, dtype, memory = output["c_name"], output["dtype"], output["memory"] or ""
    scale, strip = output["scale"], output["strip"]
    if not _IDENTIFIER.fullmatch(name) or dtype not in DTYPES or not _IDENTIFIER.fullmatch(memory or "none"):
        raise ValueError
    return Tensor(
        name=name, source=str(output["name"]), shape=_numbers(output["shape"]), dtype=dtype,
        memory=memory, layout=_numbers(output["layout"]),
        quantization=None if scale is None else Quantization(scale=float(scale), zero_point=int(output["zero_point"])),
        strip=Strip(source=str(strip["source"]), begin=int(strip["begin"]), end=int(strip["end"])) if strip else None,
    )  # fmt: skip


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _absent(output: Mapping[str, Any]) -> str:
    if output["memory"] is None:
        return "it is in the caller's memory"
    return "" if output["whole"] else "it is never complete, because its rows or columns overwrite each other"
