"""Programs whose runs keep something, written by hand: a state overwritten in place, windows that turn or move up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.program.program import Program
from codegen_c.program.steps import Transfer
from codegen_c.program.tensors import KeptState, Part, Update
from tests.arena.programs import call, program
from tvm_ext.core.platform import STATE_MEMORY


def kept(made: Program, update: Update, left: str, parts: dict[str, tuple[int, int]], pushed: int = 0) -> Program:
    """The program whose tensor s is a state. parts: of s, by tensor: first element and number of them."""
    size = made.tensors["s"].num_elements
    tensors = dict(made.tensors) | {"s": replace(made.tensors["s"], memory=STATE_MEMORY, role="state")}
    for name, (first, count) in parts.items():
        part = Part(tensor="s", first=first)
        tensors[name] = replace(made.tensors[name], shape=(count,), memory=STATE_MEMORY, part=part)
    state = KeptState(source="s", tensor="s", initial=np.zeros(size, np.uint8), left=left, update=update, pushed=pushed)
    return replace(made, tensors=tensors, states=(state,), state_home="ram")


def in_place(*, in_place: tuple[int, ...] = (0,), late: bool = False) -> Program:
    """x, s -> n, written over s; late: somebody reads s behind that."""
    writer = call("push", "s x", "n")
    writer = replace(writer, implementation=replace(writer.implementation, in_place=in_place))
    reader, last = call("read", "s", "a"), call("last", "a n", "y")
    steps = (writer, reader, last) if late else (reader, writer, last)
    made = program({"x": 16, "s": 16, "n": 16, "a": 16, "y": 16}, *steps)
    return kept(made, "in place", "n", {"n": (0, 16)})


def next_value(next_states: tuple[tuple[int, int], ...] = ((1, 1),)) -> Program:
    """x, s -> y, n by one kernel, with n over s."""
    writer = call("cell", "x s", "y n")
    writer = replace(writer, implementation=replace(writer.implementation, next_states=next_states))
    return kept(program({"x": 16, "s": 16, "y": 16, "n": 16}, writer), "in place", "n", {"n": (0, 16)})


def window(update: Update, *, moved: bool = True, early: bool = False) -> Program:
    """Four of the sixteen elements of s are new in each run."""
    push, read = call("push", "x", "n"), call("read", "s", "y")
    steps = [read, push] if early else [push, read]
    sizes = {"x": 4, "s": 16, "n": 4, "y": 16, "old": 12, "end": 12}
    parts = {"n": (12, 4)}
    if update == "shift" and moved:
        steps.append(Transfer(name="move", source="end", target="old"))  # type: ignore[arg-type]
        parts |= {"old": (0, 12), "end": (4, 12)}
    made = program({name: size for name, size in sizes.items() if name in ("x", "s", "y") or name in parts}, *steps)
    return kept(made, update, "s", parts, pushed=4)
