"""The stages together: their order, well-formed modules between them, and the reasons of the order."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from codegen_c.backend.byoc import CODEGEN
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, is_dataflow, op_name
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.compilation.stages import passes
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load
from tvm_ext.relax.pipeline_names import register_pipelines

MODELS = ("kws_fp32", "kws_int8", "resnet_fp32", "resnet_int8")


def stages(mod: tvm.IRModule) -> dict[str, tvm.IRModule]:
    """The module after each pass, by the pass's name."""
    found = {}
    for stage in passes(Platform.load("host"), BuildOptions(), "net"):
        mod = stage(mod)
        relax.analysis.well_formed(mod)
        found[str(stage.info.name)] = mod
    return found


def test_the_table_of_contents() -> None:
    names = [str(stage.info.name) for stage in passes(Platform.load("host"), BuildOptions(), "net")]
    order = ["FoldConstants", "DuplicateDequantize", "FormComposites", "ConvertLayout", "OutlineRegions"]
    assert [name for name in names if name in order] == order, "others may stand between them"
    assert names[-1] == "OutlineRegions"


@pytest.mark.parametrize("name", MODELS)
def test_shared_models_become_one_region(shared_models: Path, name: str) -> None:
    """Every operator one composite, one region, nothing left; the schedule as it was; no float between integers."""
    found = stages(load(shared_models / f"{name}.onnx"))
    composed, converted, outlined = (found[n] for n in ("FormComposites", "ConvertLayout", "OutlineRegions"))
    assert all(composite_of(composed, b.value) for b in bindings(composed["main"]))
    assert not [b for b in bindings(outlined["main"]) if op_name(b.value)]
    (region,) = [f for _, f in outlined.functions_items() if f.attrs and f.attrs.get("Codegen") == CODEGEN]
    before = [b.var.name for b in bindings(converted["main"])]
    after = [b.var.name for b in bindings(region) if not isinstance(b.value, relax.Function)]
    joined = ["reshape_1"] if name.startswith("kws") else []  # it and reshape_1.nhwc become one reshape
    assert after == [var for var in before if var not in joined]
    if name.endswith("int8"):
        # The model's own ends are float; between them only integers.
        types = [str(b.var.ty.dtype) for b in bindings(converted["main"])]
        assert types.count("float32") <= 2, types


@pytest.mark.parametrize(("name", "most"), [("kws_fp32", 3), ("kws_int8", 3), ("resnet_fp32", 3), ("resnet_int8", 3)])
def test_layout_costs_permutations_at_the_borders_only(shared_models: Path, name: str, most: int) -> None:
    converted = stages(load(shared_models / f"{name}.onnx"))["ConvertLayout"]
    permutations = [v.name_hint for v, f in converted.functions_items() if "permute" in str(f.attrs.get("Composite"))]
    assert len(permutations) <= most, permutations


def test_the_module_handed_in_stays_as_it_was(digits: Path) -> None:
    mod = load(digits / "digits.onnx")
    before = mod.script(show_meta=True)
    assert is_dataflow(mod["main"]) and "OutlineRegions" in stages(mod)
    assert mod.script(show_meta=True) == before


def test_the_same_module_gives_the_same_text(digits: Path) -> None:
    first, second = (stages(load(digits / "digits.onnx"))["OutlineRegions"].script(show_meta=True) for _ in range(2))
    assert first == second


def test_lines_of_a_script_are_no_names_of_a_model() -> None:
    """TVMScript gives each call the path of its file: that must not get into names, comments, or reports."""

    @I.ir_module
    class Script:
        @R.function
        def main(x: R.Tensor((1, 4), "float32")) -> R.Tensor((1, 4), "float32"):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    mod = load(Script)
    assert all(binding.value.span is None for binding in bindings(mod["main"]))
    compiled = compile_module(mod, Platform.load("host"), BuildOptions())
    assert Path(__file__).stem not in "".join(compiled.sources().values())


def test_shipped_platforms_are_registered_with_relax() -> None:
    """On import of tvm_ext, and once: who has registered a pipeline of that name meanwhile keeps it."""
    pipeline = relax.get_pipeline("tvm_ext.cortex_m4")
    assert str(pipeline.info.name) == "tvm_ext.cortex_m4"
    before = relax.pipeline.PIPELINE_MAP["tvm_ext.cortex_m4"]
    register_pipelines()
    assert relax.pipeline.PIPELINE_MAP["tvm_ext.cortex_m4"] is before
