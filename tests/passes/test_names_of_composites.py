"""FormComposites: names of functions, variables and source nodes."""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, with_span
from tests.passes.forming import conv, form, tensor
from tests.passes.modules import module_of


def test_names_and_source_nodes() -> None:
    """A function is named after its anchor's node, without the path of all nodes; spans of members are kept."""
    x = tensor("input:0")

    def spanned(b: relax.BlockBuilder, expr: relax.Expr, node: str, name: str) -> relax.Expr:
        span = tvm.ir.Span(tvm.ir.SourceName(node), 0, 0, 0, 0)
        return b.emit(with_span(b.normalize(expr), span), name)

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = spanned(b, conv(x), "block/Conv_1", "conv out")
        s = spanned(b, relax.op.sigmoid(c), "block/Silu", "silu_s")
        return spanned(b, relax.op.multiply(c, s), "block/Silu", "silu out")

    mod = form(module_of([x], body))
    binding = bindings(mod["main"])[0]
    composite = composite_of(mod, binding.value)
    assert binding.var.name == "silu out" and binding.value.span.source_name.name == "block/Conv_1"
    assert binding.value.op.name_hint == "conv_1"
    assert list(composite.attrs["source_nodes"]) == ["block/Conv_1", "block/Silu"]
    assert [b.var.name for b in bindings(composite)] == ["conv out", "silu_s", "silu out"]
    assert [b.value.span.source_name.name for b in bindings(composite)] == ["block/Conv_1", "block/Silu", "block/Silu"]
    assert [param.name for param in composite.params] == ["input:0"]


def test_every_variable_is_bound_once_in_the_module() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        return relax.op.concat([b.emit(conv(x), "c"), b.emit(relax.op.exp(x), "e")], 1)

    mod = form(module_of([x], body))
    bound = [b.var for _, func in mod.functions_items() for b in bindings(func)]
    assert len(set(bound)) == len(bound)


def test_equal_names_are_told_apart() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        y = x
        for name in ("a/b", "a.b", "int"):
            y = b.emit(relax.op.nn.max_pool2d(y, (1, 1)), name)
        return y

    mod = form(module_of([x], body))
    called = [b.value.op.name_hint for b in bindings(mod["main"]) if composite_of(mod, b.value)]
    assert called[:3] == ["a_b", "a_b_2", "int_"]
