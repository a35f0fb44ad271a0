"""`trace.json`: the lines of C that each operator of the model became, and the operators that each line serves."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.banner import Origin
from codegen_c.emit.layer_files import layer_pieces
from codegen_c.emit.pieces import Piece, line_ranges
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import ParallelProgram
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, calls, transfers_of
from tvm_ext.core.model_nodes import ModelNode, reachable
from tvm_ext.core.platform import Platform

SCHEMA_VERSION = 1


def emit_trace(
    program: Program,
    plan: MemoryPlan,
    interface: Interface,
    origin: Origin,
    platform: Platform,
    nodes: Sequence[ModelNode],
    weights: Mapping[str, Sequence[Piece]],
    sharing: Sharing = ALONE,
    common: Mapping[str, Sequence[Piece]] = MappingProxyType({}),
    parallel: ParallelProgram | None = None,
) -> str:
    """Return the JSON text.

    nodes: of the model, in order of execution. common: files of its bundle that contain code of the model. parallel:
    the program with per-core schedules. weights: pieces of the files of constants.

    `nodes`: each node with its fate. `code`: it has functions, steps, and lines [begin, end) of files. Nodes without
    code of their own are `constant` (computed at compile time), `folded` (computed by other nodes, or only a view of a
    tensor) or `unused` (no output depends on the node); `into` lists the nearest nodes that have code.
    `code`: every line of the files. `steps` names the program's calls that the lines belong to, `nodes` the operators
    that they compute, and `serves` the operators for which they only move elements.
    """
    files = {
        **layer_pieces(program, plan, interface, origin, platform, sharing, parallel),
        **weights,
        **{file: pieces for file, pieces in common.items() if any(piece.steps for piece in pieces)},
    }
    owners = _Owners(program, nodes)
    code = [entry for file, pieces in files.items() for entry in _code(file, pieces, owners)]
    fates = _fates(nodes, owners, code, interface)
    return json.dumps({"schema_version": SCHEMA_VERSION, "nodes": fates, "code": code}, indent=1) + "\n"


class _Owners:
    """The nodes of the model that each call of a program computes or serves."""

    def __init__(self, program: Program, nodes: Sequence[ModelNode]) -> None:
        self.calls: dict[str, Call] = {call.name: call for step in program.steps for call in calls(step)}
        self.program = program
        listed = {node.name for node in nodes}
        named = {name for call in program.kernel_calls() for name in call.source_nodes}
        by_output = {} if named else {tensor: node.name for node in nodes for tensor in node.outputs}
        self.nodes = {name: self._own(call, listed, by_output) for name, call in self.calls.items()}
        self.with_code = {node for found in self.nodes.values() for node in found}
        self._ordered = list(self.calls.values())
        self._reading, self._writing = (_by_tensor(self._ordered, written, program) for written in (False, True))
        self._prefetching = _by_constant(program)
        self.serves = {name: self._served(call) for name, call in self.calls.items() if not self.nodes[name]}

    def _own(self, call: Call, listed: set[str], by_output: Mapping[str, str]) -> list[str]:
        """Return the nodes that a kernel computes; a node inside a function or loop counts as the node that contains
        it.

        If the model does not name its operators, they are looked up by their output tensors.
        """
        if not isinstance(call, KernelCall):
            return []
        found = [_holder(name, listed) for name in call.source_nodes]
        sources = [self.program.tensors[name].source for name in call.outputs]
        return list(dict.fromkeys(found or [by_output[source] for source in sources if source in by_output]))

    def _served(self, call: Call) -> list[str]:
        """Return the nodes for which a call only moves elements: the nearest readers, or else the nearest producers."""
        if isinstance(call, DriverWait):
            return self.nodes[call.call.name]
        if not isinstance(call, KernelCall):
            constants = {transfer.source for transfer in transfers_of(call) if transfer.source_is_constant}
            readers = dict(sorted(pair for name in constants for pair in self._prefetching.get(name, {}).items()))
            if readers:
                return list(dict.fromkeys(node for reader in readers.values() for node in self.nodes[reader]))
        return self._nearest(call, forward=True) or self._nearest(call, forward=False)

    def _nearest(self, call: Call, *, forward: bool) -> list[str]:
        seen: set[str] = set()
        touching = self._reading if forward else self._writing
        pending, found = deque([call]), dict[str, None]()
        while pending:
            wanted = _ends(pending.popleft(), forward, self.program)
            for index in sorted({index for tensor in wanted for index in touching.get(tensor, ())}):
                other = self._ordered[index]
                if other.name in seen:
                    continue
                seen.add(other.name)
                if own := self.nodes[other.name]:
                    found |= dict.fromkeys(own)
                else:
                    pending.append(other)
        return list(found)


def _by_tensor(ordered: Sequence[Call], written: bool, program: Program) -> dict[str, list[int]]:
    """Return the numbers of the calls that write or read each tensor, ascending."""
    found: dict[str, list[int]] = {}
    for index, call in enumerate(ordered):
        for tensor in _ends(call, written, program):
            found.setdefault(tensor, []).append(index)
    return found


def _by_constant(program: Program) -> dict[str, dict[int, str]]:
    """Return the kernel calls that read a prefetched copy of each constant: the number and the name of each call."""
    found: dict[str, dict[int, str]] = {}
    for index, call in enumerate(program.kernel_calls()):
        for name, _ in call.prefetched:
            found.setdefault(program.constants[name].layer or name, {})[index] = call.name
    return found


def _ends(call: Call, written: bool, program: Program) -> set[str]:
    """Return the tensors that a call writes or reads; a part of a tensor also counts as the whole tensor."""
    if isinstance(call, DriverWait):
        return _ends(call.call, written, program)
    if isinstance(call, KernelCall):
        names = {*call.outputs} if written else {*call.inputs, *(tensor for _, tensor in call.prefetched)}
    else:
        names = {transfer.target if written else transfer.source for transfer in transfers_of(call)}
    parts = {part.tensor for name in names if name in program.tensors and (part := program.tensors[name].part)}
    return names | parts


def _holder(name: str, listed: set[str]) -> str:
    """Return the listed node that `name` is or lies in: `loop/0/add` lies in `loop`."""
    while name not in listed and "/" in name:
        name = name.rpartition("/")[0]
    return name


def _code(file: str, pieces: Sequence[Piece], owners: _Owners) -> list[dict[str, Any]]:
    return [
        {
            "file": file,
            "lines": [begin, end],
            "is": piece.kind,
            "name": piece.name,
            "steps": list(piece.steps),
            "nodes": list(dict.fromkeys(node for step in piece.steps for node in owners.nodes[step])),
            "serves": list(dict.fromkeys(node for step in piece.steps for node in owners.serves.get(step, ()))),
        }
        for piece, begin, end in line_ranges(pieces)
    ]


def _fates(
    nodes: Sequence[ModelNode], owners: _Owners, code: Sequence[Mapping[str, Any]], interface: Interface
) -> list[dict[str, Any]]:
    """Return what became of each node."""
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for entry in code:
        for name in entry["nodes"]:
            entries.setdefault(name, []).append(entry)
    used = reachable(nodes, [port.source for port in interface.outputs], forward=False)
    varying = reachable(nodes, [port.source for port in interface.inputs], forward=True)
    nearest = _NearestNodes(nodes, owners.with_code)

    def fate(node: ModelNode) -> dict[str, Any]:
        mine = entries.get(node.name, ())
        if mine:
            return {
                "became": "code",
                "functions": [entry["name"] for entry in mine if entry["is"] == "function"],
                "steps": [entry["name"] for entry in mine if entry["is"] == "step"],
                "lines": [{"file": entry["file"], "lines": entry["lines"]} for entry in mine],
            }
        if used.isdisjoint(node.outputs):
            return {"became": "unused", "into": []}
        became = "constant" if varying.isdisjoint(node.outputs) else "folded"
        return {"became": became, "into": nearest.after(node) or nearest.before(node)}

    return [{"name": node.name, "operator": node.operator, **fate(node)} for node in nodes]


class _NearestNodes:
    """The nearest nodes with code after and before a node, across nodes without code.

    wanted: the names of the nodes with code.
    """

    def __init__(self, nodes: Sequence[ModelNode], wanted: set[str]) -> None:
        self._nodes, self._wanted = nodes, wanted
        self._readers: dict[str, list[int]] = {}
        self._writers: dict[str, list[int]] = {}
        for index, node in enumerate(nodes):
            for tensor in dict.fromkeys(node.inputs):
                self._readers.setdefault(tensor, []).append(index)
            for tensor in dict.fromkeys(node.outputs):
                self._writers.setdefault(tensor, []).append(-index)

    def after(self, node: ModelNode) -> list[str]:
        return self._found(node.outputs, self._readers, lambda node: node.outputs)

    def before(self, node: ModelNode) -> list[str]:
        return self._found(node.inputs, self._writers, lambda node: node.inputs)

    def _found(
        self,
        tensors: Iterable[str],
        touching: Mapping[str, Sequence[int]],
        beyond: Callable[[ModelNode], Iterable[str]],
    ) -> list[str]:
        """Return the nearest nodes in order of execution, or in reverse order if `touching` has negative numbers."""
        pending, known = list[int](), set[int]()

        def add(tensors: Iterable[str], from_number: int | None) -> None:
            for tensor in tensors:
                for number in touching.get(tensor, ()):
                    if number not in known and (from_number is None or number > from_number):
                        known.add(number)
                        heappush(pending, number)

        add(tensors, None)
        found = dict[str, None]()
        while pending:
            number = heappop(pending)
            node = self._nodes[abs(number)]
            if node.name in self._wanted:
                found[node.name] = None
            else:
                add(beyond(node), number)
        return list(found)
