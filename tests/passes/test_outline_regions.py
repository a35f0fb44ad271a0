"""OutlineRegions: runs of composites become region functions, in the order they stood."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import attributes, call_new, composite_of, is_composite
from relay_passes.dataflow import bindings, build, infer, outputs
from relay_passes.regions.form_composites import FormComposites
from relay_passes.regions.outline_regions import OutlineRegions
from tests.passes.modules import module_of, without_spans
from tests.passes.stub_backend import StubBackend


def outline(before: tvm.IRModule, prefix: str = "net") -> tvm.IRModule:
    relax.analysis.well_formed(before)
    after = OutlineRegions("stub", prefix)(before)
    relax.analysis.well_formed(after)
    return after


def regions(mod: tvm.IRModule) -> dict[str, relax.Function]:
    return {v.name_hint: f for v, f in mod.functions_items() if f.attrs and f.attrs.get("Codegen") == "stub"}


def schedule(region: relax.Function) -> list[str]:
    """Names of the values a region computes, in order, without the local functions themselves."""
    return [b.var.name for b in bindings(region) if not isinstance(b.value, relax.Function)]


def chain(*names: str, refused: tuple[str, ...] = ()) -> tvm.IRModule:
    """x -> exp or, for names in `refused`, tan -> ..., each a composite of its own but for tan."""
    x = relax.Var("x", relax.TensorType((4,), "float32"))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        y = x
        for name in names[:-1]:
            y = b.emit(relax.op.tan(y) if name in refused else relax.op.exp(y), name)
        return relax.op.tan(y) if names[-1] in refused else relax.op.exp(y)

    backend = StubBackend(elementwise=frozenset(), refused=frozenset({"relax.tan"}))
    return FormComposites(backend)(module_of([x], body))


def test_a_run_between_foreign_operators() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def a(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Composite": "tvm_ext.exp", "Primitive": True, "source_nodes": ["n"]})
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                t = R.tan(x)
                a = cls.a(t)
                y = R.tan(a)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def net_region(t: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "stub"})
            with R.dataflow():

                @R.function(private=True)
                def local(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                    R.func_attr({"Composite": "tvm_ext.exp", "Primitive": True, "source_nodes": ["n"]})
                    with R.dataflow():
                        a = R.exp(x)
                        R.output(a)
                    return a

                a: R.Tensor((4,), "float32") = local(t)
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                t = R.tan(x)
                a = cls.net_region(t)
                y = R.tan(a)
                R.output(y)
            return y

    after = outline(without_spans(Before))
    tvm.ir.assert_structural_equal(after, Expected, map_free_vars=True)


def test_left_alone() -> None:
    """A module without composites."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                y = R.tan(x)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(outline(Module), Module)


def test_the_order_of_bindings_is_the_schedule() -> None:
    names = ["b", "a", "d", "c", "e"]
    (region,) = regions(outline(chain(*names))).values()
    assert schedule(region)[:-1] == names[:-1]


def test_an_order_that_is_not_depth_first_is_kept() -> None:
    """Two branches, interleaved: the order somebody chose for its memory."""
    x = relax.Var("x", relax.TensorType((4,), "float32"))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        left, right = b.emit(relax.op.exp(x), "l0"), b.emit(relax.op.exp(x), "r0")
        left = b.emit(relax.op.exp(left), "l1")
        right = b.emit(relax.op.exp(right), "r1")
        return relax.op.add(right, left)

    mod = FormComposites(StubBackend(elementwise=frozenset()))(module_of([x], body))
    (region,) = regions(outline(mod)).values()
    assert schedule(region)[:4] == ["l0", "r0", "l1", "r1"]


def test_foreign_operators_cut_the_schedule() -> None:
    mod = outline(chain("a", "b", "f", "c", "d", refused=("f",)))
    found = regions(mod)
    assert list(found) == ["net_region", "net_region_2"]
    assert schedule(found["net_region"]) == ["a", "b"]
    assert not any(is_composite(func) for _, func in mod.functions_items())
    called = [b.value.op.name_hint for b in bindings(mod["main"]) if isinstance(b.value.op, tvm.ir.GlobalVar)]
    assert called == ["net_region", "net_region_2"]
    assert {name: str(func.attrs["global_symbol"]) for name, func in found.items()} == {n: n for n in found}


def whole(results: str) -> tvm.IRModule:
    """x, u -> a = exp(x), b = exp(a); main returns the values named."""
    x, u = (relax.Var(name, relax.TensorType((4,), "float32")) for name in "xu")
    mod = tvm.IRModule()
    known, sequence = {"x": x, "u": u}, []
    for name, source in (("a", "x"), ("b", "a")):
        param = relax.Var("p", relax.TensorType((4,), "float32"))
        result = relax.Var("r", param.ty)
        inner = [relax.VarBinding(result, infer(relax.op.exp(param)))]
        func = build([param], inner, [result], attrs=attributes("exp", [name]))
        call = call_new(mod, f"{name}_exp", func, [known[source]])
        known[name] = relax.DataflowVar(name, call.ty)
        sequence.append(relax.VarBinding(known[name], call))
    main = build([x, u], sequence, [known[name] for name in results.split()])
    mod["main"] = main.with_attr("global_symbol", "main")
    return mod


@pytest.mark.parametrize("results", ["b", "a b", "b a", "b b", "x b", "b u a b"])
def test_a_whole_model_keeps_its_signature(results: str) -> None:
    """Every parameter, every result in its order: also a parameter, also one twice."""
    mod = outline(whole(results))
    (region,) = regions(mod).values()
    assert [param.name for param in region.params] == ["x", "u"]
    names = results.split()
    assert len(outputs(region)) == len(names) and [r.name for r in outputs(region)] == names
    assert [r.name for r in outputs(mod["main"])] == names
    assert str(region.attrs["global_symbol"]) == "net"
    (call, *_) = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    assert [arg.name for arg in call.args] == ["x", "u"]


@pytest.mark.parametrize("mod", [whole("b a"), chain("a", "f", "b", refused=("f",))], ids=["whole", "parts"])
def test_every_variable_is_bound_once_in_the_module(mod: tvm.IRModule) -> None:
    outlined = outline(mod)
    bound = [b.var for _, f in outlined.functions_items() for block in f.body.blocks for b in block.bindings]
    assert len(set(bound)) == len(bound)


def test_composites_are_local_and_keep_their_attributes() -> None:
    (region,) = regions(outline(whole("b"))).values()
    local = [b.value for block in region.body.blocks for b in block.bindings if isinstance(b.value, relax.Function)]
    assert [list(func.attrs["source_nodes"]) for func in local] == [["a"], ["b"]]
    assert all("global_symbol" not in func.attrs for func in local)


def test_elements_of_a_tuple_go_where_their_composite_goes() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        parts = b.emit(relax.op.split(x, 2), "parts")
        first, second = (b.emit(relax.TupleGetItem(parts, i), name) for i, name in enumerate(("first", "second")))
        return relax.op.tan(b.emit(relax.op.add(first, second), "sum"))

    backend = StubBackend(elementwise=frozenset(), refused=frozenset({"relax.tan"}))
    mod = outline(FormComposites(backend)(module_of([x], body)))
    (region,) = regions(mod).values()
    assert schedule(region) == ["parts", "first", "second", "sum"]
    assert isinstance(region.ret_ty, relax.TensorType)


def test_names_that_are_taken() -> None:
    mod = whole("b")
    assert list(regions(outline(mod, prefix="main"))) == ["main_2"]
    assert composite_of(mod, bindings(mod["main"])[0].value) is not None, "the module handed in is as it was"
