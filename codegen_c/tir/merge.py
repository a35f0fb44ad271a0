"""Merge the stages of a fused operator into one PrimFunc, so that intermediates can be inlined and share scratch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import Range, TensorLoad, TensorRegion, Var

from codegen_c.tir.legalizations import true_start, with_indices_inside
from codegen_c.tir.legalize import PrimFuncStages, Stage, StageValue
from tvm_ext.core.decisions.composites import Symbol


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged:
    """One PrimFunc; its parameters are the inputs, the outputs, then the constants."""

    function: tirx.PrimFunc
    num_inputs: int
    num_outputs: int
    constants: tuple[np.ndarray, ...]


def merge_stages(composite: PrimFuncStages) -> Merged:
    """Return all stages under one root block, over buffers of their own.

    Constants whose elements are all equal become literals; the others become parameters.
    """
    stages, results = _with_copies(composite)
    buffers = {value: _buffer(value, f"input{index}") for index, value in enumerate(composite.inputs)}
    buffers |= {value: _buffer(value, f"output{index}") for index, value in enumerate(results)}
    local, constants = [], []
    for stage in stages:
        for value in (*stage.inputs, *stage.outputs):
            if value in buffers:
                continue
            constant = value.kind == "constant"
            buffers[value] = _buffer(value, f"constant{len(constants)}" if constant else stage.name)
            if not constant:
                local.append(buffers[value])
            elif not _is_uniform(value):
                constants.append(value)
    statements = []
    for stage in stages:
        body, allocated = _inlined(stage, buffers)
        statements += body
        local += allocated
    parameters = [buffers[value] for value in (*composite.inputs, *results, *constants)]
    function = tirx.PrimFunc(parameters, _root(statements, local)).with_attr("s_tir", True)
    return Merged(
        function=Symbol(name="main").write(function),
        num_inputs=len(composite.inputs),
        num_outputs=len(results),
        constants=tuple(value.data for value in constants if value.data is not None),
    )


def _with_copies(composite: PrimFuncStages) -> tuple[list[Stage], list[StageValue]]:
    """Return the stages and results with a copy of each result that is an input, a constant, or a result already."""
    stages, results = list(composite.stages), []
    for value in composite.results:
        if value.kind == "intermediate" and value not in results:
            results.append(value)
            continue
        copied = StageValue(kind="intermediate", name=f"{value.name}_copy", shape=value.shape, dtype=value.dtype)
        stages.append(Stage(name="copy", function=_copy_of(value), inputs=(value,), outputs=(copied,)))
        results.append(copied)
    return stages, results


def _copy_of(value: StageValue) -> tirx.PrimFunc:
    source = te.placeholder(value.shape, value.dtype, "source")
    return te.create_prim_func([source, te.compute(value.shape, lambda *axes: source(*axes), "copy")])


def _inlined(stage: Stage, buffers: dict[StageValue, tirx.Buffer]) -> tuple[list[tirx.Stmt], list[tirx.Buffer]]:
    """Return the stage's statements over `buffers`, and the buffers that it allocates."""
    function = s_tir.renew_defs(stage.function)  # the same function may be called twice
    values = (*stage.inputs, *stage.outputs)
    replaced = {parameter: buffers[value] for parameter, value in zip(function.params, values, strict=True)}
    # Scripted functions have parameters with symbolic element offsets; our buffers start at offset zero.
    offsets = [parameter.ty.elem_offset for parameter in function.params]
    zeros = {offset: tirx.const(0, offset.ty.dtype) for offset in offsets if isinstance(offset, Var)}
    literals = {
        buffers[value]: tirx.const(value.data.flat[0].item(), value.dtype)
        for value in stage.inputs
        if value.data is not None and _is_uniform(value)
    }

    def load(expr: TensorLoad) -> tirx.Expr:
        return literals.get(expr.source, expr)

    def var(expr: Var) -> tirx.Expr:
        return replaced.get(expr, zeros.get(expr, expr))

    def block(expr: s_tir.SBlock) -> s_tir.SBlock:
        return _with_accesses(expr, literals)

    body = tvm_ffi.structural_map(function.body, [(Var, var), (TensorLoad, load), (s_tir.SBlock, block)])
    body = with_indices_inside(body, {buffers[value]: value.data for value in stage.inputs})
    if isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root":
        return _sequence(body.block.body), list(body.block.alloc_buffers)
    return _sequence(body), []


def _with_accesses(block: s_tir.SBlock, literals: dict[tirx.Buffer, tirx.Expr]) -> s_tir.SBlock:
    """Return the block with its whole buffers as access regions, which scheduling needs and opaque blocks lack."""
    if block.name_hint == "root":
        return block
    reads, writes = list(block.reads), list(block.writes)
    if not reads and not writes:
        touched_reads, touched_writes = _touched(block.body)
        reads, writes = [_whole(b) for b in touched_reads], [_whole(b) for b in touched_writes]
    reads = [region for region in reads if region.source not in literals]
    return s_tir.SBlock(
        block.iter_vars,
        reads,
        writes,
        block.name_hint,
        block.body,
        true_start(block),
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _touched(body: tirx.Stmt) -> tuple[list[tirx.Buffer], list[tirx.Buffer]]:
    inner, reads, writes = set(), {}, {}

    def visit(node: tvm_ffi.Object) -> None:
        if isinstance(node, tirx.AllocBuffer | tirx.DeclBuffer):
            inner.add(node.buffer)
        elif isinstance(node, TensorLoad):
            reads[node.source] = True
        elif isinstance(node, tirx.BufferStore):
            writes[node.buffer] = True

    tvm_ffi.structural_walk(body, [(tvm_ffi.Object, visit)])
    return [b for b in reads if b not in inner], [b for b in writes if b not in inner]


def _whole(buffer: tirx.Buffer) -> TensorRegion:
    return tirx.BufferRegion(buffer, [Range(0, extent) for extent in buffer.ty.shape])


def _root(statements: list[tirx.Stmt], local: list[tirx.Buffer]) -> s_tir.SBlockRealize:
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    return s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body, None, local))


def _sequence(body: tirx.Stmt) -> list[tirx.Stmt]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _is_uniform(value: StageValue) -> bool:
    if value.data is None or value.data.size == 0:
        return False
    if value.dtype == "uint64" and value.data.max() >= 2**63:
        return False  # TIR stores integers as int64
    raw = np.ascontiguousarray(value.data).reshape(-1, 1).view(np.uint8)
    return bool((raw == raw[0]).all())


def _buffer(value: StageValue, name: str) -> tirx.Buffer:
    return tirx.decl_buffer(value.shape, value.dtype, name)
