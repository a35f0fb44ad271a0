"""Memory of the buffers that a lowered function allocates: a local variable, the stack, or scratch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from codegen_c.c_text.text import C_TYPES
from codegen_c.tir.plain_c import SCRATCH_ALIGNMENT_BYTES, CannotLowerError

MAX_STACK_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Memory of the buffers. scalars: of one element each. arrays: on the stack, at most MAX_STACK_BYTES together.

    offsets: bytes into scratch. aliases: buffers that are declared over the memory of another buffer, with its owner.
    """

    scalars: frozenset[Var]
    arrays: frozenset[Var]
    offsets: dict[Var, int]
    aliases: dict[Var, Var]
    scratch_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Lifetime:
    buffer: Var
    num_bytes: int
    begin: int
    end: int


def place_buffers(body: tirx.Stmt) -> Storage:
    """Choose the memory of every allocation in `body`; buffers in scratch with disjoint lifetimes share bytes."""
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    aliases = _aliases(body)
    uses: dict[Var, list[int]] = {}
    allocated: list[Var] = []
    for index, statement in enumerate(statements):

        def used(buffer: Var, index: int = index) -> None:
            uses.setdefault(aliases.get(buffer, buffer), []).append(index)

        tvm_ffi.structural_walk(
            statement,
            [
                (TensorLoad, lambda load, used=used: used(load.source)),
                (tirx.BufferStore, lambda store, used=used: used(store.buffer)),
                (tirx.AllocBuffer, lambda alloc: allocated.append(alloc.buffer)),
            ],
        )
    scalars, arrays, lifetimes, stack = set(), set(), [], 0
    for buffer in (buffer for buffer in allocated if buffer in uses):
        size = _num_bytes(buffer)
        if math.prod(int(extent) for extent in buffer.ty.shape) == 1:
            scalars.add(buffer)
        elif stack + size <= MAX_STACK_BYTES:
            arrays.add(buffer)
            stack += size
        else:
            span = uses[buffer]
            lifetimes.append(_Lifetime(buffer=buffer, num_bytes=size, begin=min(span), end=max(span) + 1))
    offsets = _offsets(lifetimes)
    return Storage(
        scalars=frozenset(scalars),
        arrays=frozenset(arrays),
        offsets=offsets,
        aliases=aliases,
        scratch_bytes=max((offsets[one.buffer] + one.num_bytes for one in lifetimes), default=0),
    )


def _aliases(body: tirx.Stmt) -> dict[Var, Var]:
    aliases: dict[Var, Var] = {}

    def visit(declared: tirx.DeclBuffer) -> None:
        data, buffer = declared.data, declared.buffer
        plain = isinstance(data, Call) and data.op.name == "tirx.buffer_data"
        if not plain or str(data.args[0].ty.dtype) != str(buffer.ty.dtype):
            raise CannotLowerError(f"the buffer {buffer.name} is a view of other memory")
        aliases[buffer] = aliases.get(data.args[0], data.args[0])

    tvm_ffi.structural_walk(body, [(tirx.DeclBuffer, visit)])
    return aliases


def _offsets(lifetimes: list[_Lifetime]) -> dict[Var, int]:
    """Return offsets by first fit, the largest buffer first."""
    placed: list[tuple[_Lifetime, int]] = []
    for one in sorted(lifetimes, key=lambda lifetime: -lifetime.num_bytes):
        offset = 0
        for other, taken in sorted(placed, key=lambda pair: pair[1]):
            if other.begin < one.end and one.begin < other.end and offset + one.num_bytes > taken:
                offset = max(offset, _aligned(taken + other.num_bytes))
        placed.append((one, offset))
    return {one.buffer: offset for one, offset in placed}


def _aligned(offset: int) -> int:
    return -(-offset // SCRATCH_ALIGNMENT_BYTES) * SCRATCH_ALIGNMENT_BYTES


def _num_bytes(buffer: Var) -> int:
    dtype = str(buffer.ty.dtype)
    if dtype not in C_TYPES:
        raise CannotLowerError(f"a buffer of type {dtype}; C11 has {', '.join(C_TYPES)}")
    bits = 8 if dtype == "bool" else int(dtype.lstrip("uintfloa"))
    return math.prod(int(extent) for extent in buffer.ty.shape) * bits // 8
