"""Options through TVM's PassContext, and errors that show where a Relax module is written."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
import tvm_ext.relax.partition
from tvm_ext import BuildOptions, Platform, errors
from tvm_ext.core.decisions.composites import RegionBuild
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.relax.pass_config import options_here, pass_context

BOARD = Platform.load("cortex_m4")


@I.ir_module
class Small:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            z = R.exp(y)
            R.output(z)
        return z


@I.ir_module
class Sorting:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            z = R.sort(y, axis=-1)
            R.output(z)
        return z


@I.ir_module
class Counting:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.nonzero(x)
            R.output(y)
        return y


@I.ir_module
class Choosing:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), c: R.Tensor((), "bool")):
        if c:  # noqa: SIM108
            z = R.exp(x)
        else:
            z = R.sin(x)
        return z


def test_keys_of_the_context_are_options() -> None:
    config = {"tvm_ext.ram": "64KiB", "tvm_ext.optimize": "size", "tvm_ext.processors": ["cpu"], "tirx.noalias": True}
    made = pass_context(opt_level=3, config=config)
    assert (made.opt_level, bool(made.config["tirx.noalias"])) == (3, True)
    expected = BuildOptions(ram="64KiB", optimize="size", processors=("cpu",))
    assert options_here(None, made) == expected
    with made:
        assert options_here(None) == expected
        regions = tvm_ext.partition_for_tvm_ext(Small, BOARD)
    assert options_here(None) == BuildOptions()
    ((_, function),) = [(var, one) for var, one in regions.functions_items() if RegionBuild.read(one).platform]
    compiled = BuildOptions.from_json(RegionBuild.read(function).options)
    assert (compiled.ram_bytes, compiled.optimize) == (65536, "size")


def test_a_pipeline_reads_them_where_it_runs() -> None:
    pipeline = tvm_ext.relax_pipeline("host")
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    with pass_context(config={"tvm_ext.name": "mine"}):
        executable = tvm.compile(Small, target="llvm", relax_pipeline=pipeline)
    assert [*tvm_ext.region_sources(executable)] == ["mine"]
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_allclose(result.numpy(), np.exp(np.maximum(x, 0)), rtol=1e-6)
    assert [*tvm_ext.region_sources(tvm.compile(Small, target="llvm", relax_pipeline=pipeline))] != ["mine"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tvm_ext.rom": 3}, "has no option 'rom'|PassContext.*rom"),
        ({"tvm_ext.optimize": "most"}, "optimize = 'most': allowed are balanced, speed, size"),
        ([], "config is of type list; give a dict"),
    ],
)
def test_configs_that_cannot_be(config: Any, message: str) -> None:
    with pytest.raises(errors.BadOptions, match=message):
        pass_context(config=config)


def test_a_key_that_tvm_does_not_know() -> None:
    with pytest.raises(AttributeError, match=r"Invalid config option 'other\.key'"):
        pass_context(config={"other.key": 1, "tvm_ext.ram": 4096})


def test_options_in_two_places() -> None:
    with (
        pass_context(config={"tvm_ext.ram": 4096}),
        pytest.raises(errors.BadOptions, match=r"the PassContext has tvm_ext\.ram: give all options in one of the two"),
    ):
        tvm_ext.partition_for_tvm_ext(Small, BOARD, BuildOptions())
    with (
        pass_context(config={"tvm_ext.pin": {"x": 0}}),
        pytest.raises(errors.BadOptions, match="pin, keep and place_port: inside"),
    ):
        tvm_ext.relax_pipeline("host")(Small)


def line(text: str) -> str:
    """Return `test_pass_config.py:LINE` of the line of this file that ends in a text."""
    with open(__file__, encoding="utf-8") as file:
        (number,) = [index for index, one in enumerate(file, 1) if one.strip() == text]
    return rf"\(test_pass_config\.py:{number}\)"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Sorting, r"left over: relax\.sort \(1 times\)\. The first is z = R\.sort\(y, axis=-1, descending=False\) "
                  + line("z = R.sort(y, axis=-1)") + r"\. Remove them"),
        (Counting, r"'y' has no static shape: .*, from y = R\.nonzero\(x\) " + line("y = R.nonzero(x)")),
        (Choosing, r"'main' is not a single dataflow block of plain bindings: z = R\.If\(c\)\. Control flow"),
    ],
)  # fmt: skip
def test_errors_show_the_binding_and_its_line(module: tvm.IRModule, message: str) -> None:
    with pytest.raises(errors.UnsupportedModel, match=message):
        tvm_ext.estimate(module, BOARD)


def test_errors_of_a_module_without_lines() -> None:
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    build = relax.BlockBuilder()
    with build.function("main", [x]):
        with build.dataflow():
            out = build.emit_output(relax.op.sort(x))
        build.emit_func_output(out)
    with pytest.raises(
        errors.UnsupportedModel, match=re.escape("The first is gv = R.sort(x, axis=-1, descending=False). ")
    ):
        tvm_ext.estimate(build.get(), BOARD)


def test_lines_are_kept_with_the_module() -> None:
    lines = [node.line for node in ModelOrigin.read(tvm_ext.load(tvm_ext.load(Small))).nodes]
    assert [one.startswith("test_pass_config.py:") for one in lines] == [True, True]
