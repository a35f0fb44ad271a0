"""Generated files are read in an editor: no line of C, of a header or of a build file is longer than 120 columns."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import numpy as np
import onnx
import pytest

import tvm_ext
from codegen_c.c_text.text import MOST_COLUMNS, comment_block, folded
from tests.golden import models
from tests.golden.test_golden import CASES
from tests.support.kinds import KINDS
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform

ROOT = Path(__file__).resolve().parents[2]
READ = (".c", ".h", ".ld", ".txt", "Makefile")
"""Endings of sources and build files."""
SOME_KINDS = ("int8_helium", "stream", "dma", "tflite_host")


def too_long(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(folder)}:{number}: {len(line)}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name.endswith(READ)
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if len(line) > MOST_COLUMNS
    ]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_packages_of_golden_networks(name: str, tmp_path: Path) -> None:
    make, platform, options = CASES[name]
    onnx.save(make(), tmp_path / "net.onnx")
    mod = tvm_ext.load(tmp_path / "net.onnx")
    tvm_ext.build(mod, Platform.load(platform), tmp_path / "package", _unverified(options))
    assert not too_long(tmp_path / "package")


@pytest.mark.board
@pytest.mark.parametrize("name", SOME_KINDS)
@pytest.mark.slow
def test_packages_of_several_kinds(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    source = kind.source(tmp_path)
    tvm_ext.build(tvm_ext.load(source), kind.platform, tmp_path / "package", _unverified(kind.options))
    assert not too_long(tmp_path / "package")


def test_long_names_of_the_model(tmp_path: Path) -> None:
    """Operators with long names, tensors with longer ones."""
    model = models.float_network()
    for node in model.graph.node:
        node.name = f"network/block/{node.name}/{'depthwise separable, ' * 8}{'x' * 130}"
        node.output[:] = [out if out == "probabilities" else out + "/" + "activation" * 20 for out in node.output]
        node.input[:] = [
            name + "/" + "activation" * 20 if name in ("conv1/out", "relu1", "pool", "flat", "scores") else name
            for name in node.input
        ]
    onnx.save(model, tmp_path / "net.onnx")
    options = BuildOptions(name="a_model_whose_name_is_long_as_well_42", verify=())
    tvm_ext.build(tvm_ext.load(tmp_path / "net.onnx"), Platform.load("host"), tmp_path / "package", options)
    assert not [line for line in too_long(tmp_path / "package") if line.split(":")[0].endswith((".c", ".h"))]


def test_names_longer_than_a_line_are_broken_at_separators(tmp_path: Path) -> None:
    """Comments of the arena's members, which stand four columns in."""
    model = models.float_network()
    fused = ";".join(f"functional_1/block_{index}/BiasAdd/ReadVariableOp/resource" for index in range(4))
    for node in model.graph.node:
        node.output[:] = [out if out == "probabilities" else f"{out}/{fused}" for out in node.output]
        node.input[:] = [
            f"{name}/{fused}" if name in ("conv1/out", "relu1", "pool", "flat", "scores") else name
            for name in node.input
        ]
    onnx.save(model, tmp_path / "net.onnx")
    tvm_ext.build(tvm_ext.load(tmp_path / "net.onnx"), Platform.load("host"), tmp_path / "package", _unverified(None))
    text = (tmp_path / "package" / "net_memory.h").read_text()
    comments = [found[1].split("\n") for found in re.finditer(r"^    /\* (.*?) \*/$", text, re.DOTALL | re.MULTILINE)]
    named = [lines for lines in comments if "functional_1" in " ".join(lines)]
    assert named and all(line.startswith("     * ") for lines in comments for line in lines[1:])
    for first, *others in named:
        broken = [first, *(line.removeprefix("     * ") for line in others)]
        assert all(line.endswith((";", "/", "],")) and len(line) > 8 for line in broken[:-1]), broken
        assert fused in "".join(broken), "nothing but line breaks is added"


def test_headers_of_all_targets() -> None:
    assert not too_long(ROOT / "codegen_c" / "runtime") + too_long(ROOT / "codegen_c" / "targets")


def _unverified(options: BuildOptions | None) -> BuildOptions:
    return replace(options or BuildOptions(), verify=())


def test_code_is_broken_behind_the_outermost_comma() -> None:
    line = "    f(first, g(" + ", ".join(["second"] * 10) + "), " + ", ".join(["third"] * 10) + ");"
    first, second = folded(line).split("\n")
    assert first.endswith("third,") and len(first) <= MOST_COLUMNS
    assert second.startswith("        third") and f"{first} {second.lstrip()}" == line


def test_products_are_no_comments() -> None:
    """A line that goes on with a factor, and is too long once more."""
    product = "    y[i] = " + " * ".join(f"factor_{number:03d}[c % 2 + {number}]" for number in range(20)) + ";"
    lines = folded(product).split("\n")
    assert len(lines) > 3 and all(len(line) <= MOST_COLUMNS for line in lines)
    assert " ".join(line.strip() for line in lines) == product.strip()


def test_a_long_line_of_a_comment_goes_on_as_one() -> None:
    text = "/* First.\n * " + "word " * 40 + "*/\nx = 1;"
    lines = folded(text).split("\n")
    assert all(line.startswith((" * ", "* ")) for line in lines[1:-1]) and lines[-1] == "x = 1;"


def test_strings_and_directives_stay_whole() -> None:
    text = '    "' + "word, " * 30 + '";'
    assert folded(text) == text
    directive = "#define LONG " + "word, " * 30
    assert folded(directive) == directive


def test_comments_are_broken_between_words_or_within_one_that_is_too_long() -> None:
    lines = folded("/* " + "word " * 40 + "x" * 200 + " */").split("\n")
    assert all(len(line) <= MOST_COLUMNS for line in lines) and all(line.startswith(" * ") for line in lines[1:])
    assert "".join(lines).count("x") == 200
    assert comment_block(["one", "two"]) == "/* one\n * two */"


def test_words_of_a_comment_that_are_a_line_by_themselves_leave_no_line_empty() -> None:
    """Between the width of a line of text and that of a line with its comment marks."""
    for length in range(MOST_COLUMNS - 12, MOST_COLUMNS + 4):
        for text in (f"    /* {'x' * length} */", f"/* {'x' * length} */", f"/*\n     * {'x' * length}\n     */"):
            lines = folded(text).split("\n")
            assert all(len(line) <= MOST_COLUMNS for line in lines)
            bare = [line.strip() for line in lines if "x" not in line]
            assert bare == (["/*", "*/"] if text.startswith("/*\n") else bare[:1] if bare == ["*/"] else []), lines


def test_names_are_broken_behind_semicolons_before_slashes() -> None:
    parts = [f"{'block/' * 12}{letter * 20};" for letter in "abc"]
    assert comment_block(["".join(parts)]) == f"/* {parts[0]}\n * {parts[1]}\n * {parts[2]} */"
    slashes = "/".join(["some_scope"] * 20)
    first, second = comment_block([slashes]).split("\n")
    assert first.endswith("some_scope/") and second.startswith(" * some_scope/")


def test_comment_blocks_that_stand_further_in_are_broken_once() -> None:
    text = "word " * 60
    lines = comment_block([text], columns=8).split("\n")
    assert folded(indent("\n".join(lines), " " * 8)) == indent("\n".join(lines), " " * 8)


def test_layers_of_one_shape_share_a_function_named_for_what_it_computes(tmp_path: Path) -> None:
    nodes, constants = [], {}
    for index in range(3):
        constants[f"w{index}"] = models.fractions(4, 4, 3, 3) + np.float32(index)
        names = ("x" if index == 0 else f"t{index}", f"w{index}")
        nodes.append(models.NODE("Conv", names, [f"t{index + 1}"], f"layer_{index}", pads=[1, 1, 1, 1]))
    onnx.save(models.model(nodes, {"x": [1, 4, 6, 6]}, ["t3"], constants), tmp_path / "net.onnx")
    mod = tvm_ext.load(tmp_path / "net.onnx")
    tvm_ext.build(mod, Platform.load("host"), tmp_path / "package", BuildOptions(verify=()))
    text = (tmp_path / "package" / "net.c").read_text()
    assert text.count("TVM_EXT_STEP void net_conv2d_3x3_f32_4x4(") == 1
    assert " * - Conv layer_1\n" in text
    assert "net_layer_1(" not in text
