"""Arenas and placed tensors of a report as a page draws them; reports of before `tensors` was written included."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_ext.report.page.colours import KINDS
from tvm_ext.report.read_report import Report

WORDS = {
    "input": "input",
    "output": "output",
    "intermediate": "activation",
    "weights": "copy of weights",
    "copy": "activation moved from another memory",
    "state": "state, kept from run to run",
    "scratch": "scratch of a kernel",
}
"""Kinds of tensors in words, as legends have them."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A tensor or scratch: bytes [offset, offset + num_bytes) of a memory in steps [begin, end)."""

    c_name: str
    label: str
    kind: str
    memory: str
    offset: int
    num_bytes: int
    begin: int
    end: int
    part_of: str | None
    facts: str

    @property
    def work(self) -> int:
        """Bytes times steps."""
        return self.num_bytes * (self.end - self.begin)


@dataclass(frozen=True, kw_only=True)
class ShownArena:
    """A memory's arena: what it takes, the least it could take, and what it may take."""

    memory: str
    title: str
    num_bytes: int
    lower_bound_bytes: int | None
    limit_bytes: int | None
    peak_step: int | None
    live_bytes: Sequence[int]
    proved: bool


def arenas_of(report: Report) -> list[ShownArena]:
    """Arenas of a report, the default memory's first."""
    found: list[Report] = report.get("arenas") or []
    if found:
        return [
            ShownArena(
                memory=one["memory"], title=_title(one["memory"], one["inside"]), num_bytes=one["num_bytes"],
                lower_bound_bytes=one["lower_bound_bytes"], limit_bytes=one["limit_bytes"],
                peak_step=one["peak_step"], live_bytes=one["live_bytes"], proved=one["proved"],
            )
            for one in found
        ]  # fmt: skip
    sizes: dict[str, int] = {}
    for thing in things_of(report):
        sizes[thing.memory] = max(sizes.get(thing.memory, 0), thing.offset + thing.num_bytes)
    return [
        ShownArena(
            memory=memory, title=memory, num_bytes=size, lower_bound_bytes=None, limit_bytes=None, peak_step=None,
            live_bytes=(), proved=False,
        )
        for memory, size in sizes.items()
    ]  # fmt: skip


def _title(memory: str, inside: str) -> str:
    return memory if memory == inside else f"{memory}, in {inside}"


def things_of(report: Report) -> list[Thing]:
    """Everything that a report gives a place."""
    makers: dict[str, str] = {}
    readers: dict[str, str] = {}
    for step in report["steps"]:
        for tensor in step["outputs"]:
            makers.setdefault(tensor["c_name"], step["name"])
        for name in step.get("reads", ()):
            readers[name] = step["name"]
    if "tensors" in report:
        return [_thing(one, makers, readers) for one in report["tensors"]]
    outputs = [tensor | {"of": step} for step in report["steps"] for tensor in step["outputs"]]
    placed = {tensor["c_name"]: tensor for tensor in outputs if tensor.get("memory") is not None}
    return [_thing(_completed(tensor), makers, readers) for tensor in placed.values()]


def _completed(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """An output of a step with what an older report does not say."""
    bits = re.search(r"\d+", tensor["dtype"])
    num_bytes = math.prod(tensor["shape"]) * (int(bits[0]) if bits else 8) // 8
    kind = "copy" if tensor["of"]["kernel"] in ("dma", "copy", "wait") else "intermediate"
    return {**tensor, "num_bytes": num_bytes, "kind": kind, "part_of": None}


def _thing(one: Mapping[str, Any], makers: Mapping[str, str], readers: Mapping[str, str]) -> Thing:
    name, kind = one["c_name"], one["kind"] if one["kind"] in KINDS else "intermediate"
    begin, end, offset, size = (int(one[key]) for key in ("begin", "end", "offset", "num_bytes"))
    source = one.get("name")
    lines = [
        name if source in (None, name) else f"{name} ({source})",
        WORDS[kind] + (f", {one['dtype']}[{', '.join(map(str, one['shape']))}]" if one.get("dtype") else ""),
        f"{size:,} B at offset {offset:,}, up to {offset + size:,}",
        "in every step" if kind == "state" else f"steps {begin} to {end - 1}",
        f"made by {makers[name]}" if name in makers else "",
        f"last read by {readers[name]}" if name in readers else "",
        f"inside {one['part_of']}" if one.get("part_of") else "",
    ]
    return Thing(
        c_name=name, label=name, kind=kind, memory=one["memory"], offset=offset, num_bytes=size, begin=begin, end=end,
        part_of=one.get("part_of"), facts="\n".join(filter(None, lines)),
    )  # fmt: skip
