"""MLIR text of TOSA: the values and the C of the same network as a .tosa file, and text that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.tosa_cases import all_cases, file_of
from tests.support.tosa_file import Operator, tosa_file
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadModel, TvmExtError, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.load import load
from tvm_ext.frontends.tosa.read_file import TosaGraph, TosaNode, read_tosa
from tvm_ext.frontends.tosa.read_text import read_tosa_text
from tvm_ext.verification.reference_runtimes.tosa_runtime import run_reference

_NAMES = {"bool": "i1", "int4": "i4", "int8": "i8", "int16": "i16", "int32": "i32", "int48": "i48", "float32": "f32"}


class _Writer:
    """Writes a graph as `tosa-opt` prints it: in the pretty form, or in the generic form with locations."""

    def __init__(self, graph: TosaGraph, *, is_generic: bool) -> None:
        self.graph, self.is_generic = graph, is_generic

    def text(self) -> str:
        graph, lines = self.graph, [self.operator(node) for node in self.graph.nodes]
        returned = ", ".join(f"%{name}" for name in graph.outputs)
        types = ", ".join(map(self.type, graph.outputs))
        values = ", ".join(f"%{name}: {self.type(name)}" for name in graph.inputs)
        ports = [[f'{{tosa.tensor_name = "{name}"}}' for name in names] for names in (graph.inputs, graph.outputs)]
        if self.is_generic:
            given = ", ".join(map(self.type, graph.inputs))
            return "\n".join([
                '#loc = loc("m.mlir":0:0)', '"builtin.module"() ({', '  "func.func"() <{arg_attrs = '
                f"[{', '.join(ports[0])}], function_type = ({given}) -> ({types}), res_attrs = "
                f'[{", ".join(ports[1])}], sym_name = "main"}}> ({{', f"  ^bb0({values}):", *lines,
                f'    "func.return"({returned}) : ({types}) -> () loc(#loc)', "  }) : () -> () loc(#loc)",
                '}) {tosa.description = "a (bracket"} : () -> () loc(#loc)',
                '#loc1 = loc(callsite("a" at "b":1:2))', "",
            ])  # fmt: skip
        named = ", ".join(
            f"%{name}: {self.type(name)} {port}" for name, port in zip(graph.inputs, ports[0], strict=True)
        )
        results = ", ".join(f"{self.type(name)} {port}" for name, port in zip(graph.outputs, ports[1], strict=True))
        return "\n".join([
            "module attributes {tfl.metadata = {version = [1, {a}]}, tfl.schema_version = 3 : i32} {",
            f'  func.func @main({named}) -> ({results}) attributes {{tf.entry_function = {{inputs = "x"}}}} {{',
            *lines,
            f"    return {returned} : {types}  // the end", "  }", "}",
        ])  # fmt: skip

    def type(self, name: str) -> str:
        tensor = self.graph.tensors[name]
        if tensor.type_name == "shape":
            return f"!tosa.shape<{tensor.shape[0]}>"
        return f"tensor<{''.join(f'{extent}x' for extent in tensor.shape)}{_NAMES[tensor.type_name]}>"

    def operator(self, node: TosaNode) -> str:
        (name,), attributes = node.outputs, self.attributes(node)
        operands = ", ".join(f"%{value}" for value in node.inputs)
        types = f"({', '.join(map(self.type, node.inputs))}) -> {self.type(name)}"
        if self.is_generic:
            inner = f" <{{{attributes}}}>" if attributes else ""
            return f'    %{name} = "tosa.{node.operator.lower()}"({operands}){inner} : {types} loc("m.mlir":7:1)'
        inner = f" {{{attributes}}}" if attributes else ""
        return f"    %{name} = tosa.{node.operator.lower()} {operands}{inner} : {types}"

    def attributes(self, node: TosaNode) -> str:
        if node.operator in ("CONST", "CONST_SHAPE"):
            tensor = self.graph.tensors[node.outputs[0]]
            assert tensor.data is not None
            kind = self.type(tensor.name)
            kind = kind if tensor.type_name != "shape" else f"tensor<{tensor.shape[0]}xindex>"
            return f"values = dense<{json.dumps(tensor.data.tolist())}> : {kind}"
        return ", ".join(f"{key} = {self.attribute(key, value, node)}" for key, value in node.attributes.items())

    def attribute(self, key: str, value: object, node: TosaNode) -> str:
        if isinstance(value, bytes):
            type_name = self.graph.tensors[node.inputs[0]].type_name
            num_bytes = int(_NAMES[type_name][1:]) // 8
            return f"{int.from_bytes(value[:num_bytes], 'little', signed=True)} : {_NAMES[type_name]}"
        if isinstance(value, tuple):
            return f"array<i64: {', '.join(map(str, value))}>"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int):
            return f"{value} : i32"
        if key == "acc_type":
            return _NAMES[str(value)]
        word = str(value) + ("_NEIGHBOR" if value == "NEAREST" else "")
        return f"#tosa.{key}<{word}>" if self.is_generic else word


def _read(text: str | bytes, folder: Path, limits: Limits | None = None) -> TosaGraph:
    path = folder / "m.mlir"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_tosa_text(path, limits or Limits())


def _from_file(data: bytes, folder: Path) -> TosaGraph:
    (folder / "m.tosa").write_bytes(data)
    return read_tosa(folder / "m.tosa", Limits())


@pytest.mark.parametrize("is_generic", [False, True])
def test_every_operator_has_the_values_of_the_flatbuffer(is_generic: bool, tmp_path: Path) -> None:
    expected = _from_file(file_of(all_cases()), tmp_path)
    found = _read(_Writer(expected, is_generic=is_generic).text(), tmp_path)
    assert (found.inputs, found.outputs) == (expected.inputs, expected.outputs)
    assert [(node.operator, node.label, node.inputs, node.outputs) for node in found.nodes] == [
        (node.operator, node.label, node.inputs, node.outputs) for node in expected.nodes
    ]
    padded = [
        {key: value.ljust(8, b"\0") if isinstance(value, bytes) else value for key, value in node.attributes.items()}
        for node in expected.nodes
    ]
    assert [node.attributes for node in found.nodes] == padded
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        assert (other.type_name, other.shape) == (tensor.type_name, tensor.shape)
        assert (other.data is None) == (tensor.data is None)
        if tensor.data is not None and other.data is not None:
            assert other.data.dtype == tensor.data.dtype and np.array_equal(other.data, tensor.data)


def test_the_text_compiles_to_the_same_c(tmp_path: Path) -> None:
    cases = [case for case in all_cases() if case.name.startswith(("conv2d", "rescale", "table"))][:6]
    graph = _from_file(file_of(cases), tmp_path)
    (tmp_path / "m.mlir").write_text(_Writer(graph, is_generic=False).text())
    for suffix in ("tosa", "mlir"):
        mod = load(tmp_path / f"m.{suffix}", states={})
        tvm_ext.build(mod, "host", tmp_path / suffix, options=BuildOptions(verify=()))
    sources = [*(tmp_path / "tosa").rglob("*.[ch]")]
    assert len(sources) > 5
    for path in sources:
        text = (tmp_path / "mlir" / path.relative_to(tmp_path / "tosa")).read_text()
        told = text.replace("m.mlir", "m.tosa").replace(ModelOrigin.read(mod).sha256, graph.sha256)
        assert told == path.read_text()


_ONE = """func.func @main(%arg0: tensor<2x3xi8>) -> tensor<2x3xi8> {{
  %0 = {0}
  %1 = tosa.add %arg0, %0 : (tensor<2x3xi8>, {1}) -> tensor<2x3xi8>
  return %1 : tensor<2x3xi8>
}}
{2}"""


def _constant(literal: str, kind: str = "tensor<2x3xi8>", rest: str = "") -> str:
    return _ONE.format(f'"tosa.const"() <{{values = {literal} : {kind}}}> : () -> {kind}', kind, rest)


@pytest.mark.parametrize(
    ("literal", "kind", "expected"),
    [
        ("dense<-7>", "tensor<2x3xi8>", np.full((2, 3), -7, np.int8)),
        ("dense<[[1, -2, 3], [0xFF, 255, -128]]>", "tensor<2x3xi8>", np.array([[1, -2, 3], [-1, -1, -128]], np.int8)),
        ('dense<"0x0102FD">', "tensor<1x3xi8>", np.array([[1, 2, -3]], np.int8)),
        ('dense<"0x05">', "tensor<1x3xi8>", np.array([[5, 5, 5]], np.int8)),
        ('dense<"0x010000000000FEFFFFFFFFFF">', "tensor<2xi48>", np.array([1, -2], np.int64)),
        ('dense<"0x010E">', "tensor<2xi4>", np.array([1, -2], np.int8)),
        ('dense<"0x0100">', "tensor<2xi1>", np.array([True, False])),
        ("dense<[true, false]>", "tensor<2xi1>", np.array([True, False])),
        ("dense<[1.5e+00, 0x7F800000]>", "tensor<2xf32>", np.array([1.5, np.inf], np.float32)),
        ("dense<>", "tensor<0x2xi8>", np.empty((0, 2), np.int8)),
        ("dense_resource<a>", "tensor<3xi8>", np.array([1, -2, 3], np.int8)),
        ('dense_resource<"b c">', "tensor<2xi16>", np.array([1, -2], np.int16)),
    ],
)
def test_constants(literal: str, kind: str, expected: np.ndarray, tmp_path: Path) -> None:
    resources = """{-#
  dialect_resources: {
    builtin: { a: "0x1000000001FE03", "b c": "0x020000000100FEFF" }
  },
  external_resources: { mlir_reproducer: { pipeline: "builtin.module()", threads: true } }
#-}"""
    data = _read(_constant(literal, kind, resources), tmp_path).tensors["layer_0"].data
    assert data is not None and data.dtype == expected.dtype and np.array_equal(data, expected)


def test_names_are_those_of_the_serializer(tmp_path: Path) -> None:
    text = """func.func @main(%arg0: tensor<?x3xi8>, %a: tensor<2xi8> {tosa.tensor_name = "layer_0"}, %b: tensor<2xi8>)
        -> (tensor<?x3xi8>, tensor<2xi8> {tosa.tensor_name = "second"}, tensor<2xi8>) {
      %0:2 = "tosa.custom"(%a) {operator_name = "x", implementation_attrs = ""} : (tensor<2xi8>) -> (tensor<2xi8>, tensor<2xi8>)
      %x = tosa.clamp %arg0 {max_val = 9 : i8, min_val = -128 : i8} : (tensor<?x3xi8>) -> tensor<?x3xi8>
      return %x, %0#1, %a : tensor<?x3xi8>, tensor<2xi8>, tensor<2xi8>
    }"""  # noqa: E501
    graph = _read(text, tmp_path)
    assert graph.inputs == ("TosaInput_0", "layer_0", "TosaInput_2")
    assert graph.outputs == ("TosaOutput_0", "second", "layer_0")
    assert graph.nodes[0].outputs == ("layer_0#0", "second") and graph.tensors["TosaInput_0"].shape == (None, 3)
    assert graph.nodes[1].attributes == {
        "max_val": b"\x09" + bytes(7), "min_val": b"\x80" + bytes(7), "nan_mode": "PROPAGATE"
    }  # fmt: skip


_ADD = "tosa.add %arg0, %arg0 : (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2x3xi8>"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", BadModel, "is empty"),
        ("// nothing", BadModel, "has no function"),
        ("module {", UnsupportedModel, r":1:9: a module of one function.*its end"),
        ("module { § }", BadModel, ":1:10: the character .* begins no word"),
        ("func.func @f() { return }\nfunc.func @g() { return }", UnsupportedModel, ":2:1: a second function"),
        ("func.func @f(%x: tensor<2xi8>) {\n  return %y : tensor<2xi8> }", BadModel, ":2:10: the value %y is used"),
        ("func.func @f(%x: tensor<*xi8>) { return }", UnsupportedModel, ":1:18: this type cannot be compiled"),
        ("func.func @f(%x: tensor<2x!quant.uniform<i8:f32, 0.1>>) {}", UnsupportedModel, "quantized types by integers"),
        ("func.func @f(%x: tensor<2xui8>) { return }", UnsupportedModel, "element type 'ui8' is not supported"),
        ("func.func @f(%x: tensor<99999999999xi8>) { return }", UnsupportedModel, "limit tensor_bytes"),
        ("func.func @f(%x: i8) { return }", BadModel, "a type is expected, and the text has 'i8'"),
        ("func.func @f(%x: tensor<2xi8>) -> tensor<3xi8> { return %x : tensor<2xi8> }",
         BadModel, "types of the results"),
        ("module attributes {a = [1, (2]} {}", BadModel, "closes none that is open"),
        ("module attributes {a = [1, ", BadModel, "the text ends inside of this attribute"),
        (_ONE.format("tfl.conv_2d %arg0", "", ""), UnsupportedModel, ":2:8: 'tfl.conv_2d' cannot be compiled"),
        (_ONE.format("tosa.while_loop %arg0", "", ""), UnsupportedModel, "without control flow and variables"),
        (_ONE.format("tosa.add %arg0, %arg0 : (tensor<2x3xi8>) -> tensor<2x3xi8>", "", ""), BadModel, "other operands"),
        (_ONE.format(_ADD + "\n  %0 = " + _ADD, "tensor<2x3xi8>", ""), BadModel, ":3:3: the value %0 is defined twice"),
        (_ONE.format(_ADD.replace(" :", " {shift = 1 : i8} :"), "", ""), UnsupportedModel, "'shift', which is no"),
        (_ONE.format("tosa.clamp %arg0 {min_val = 1 : i8} : (tensor<2x3xi8>) -> tensor<2x3xi8>", "", ""),
         UnsupportedModel, "has no max_val"),
        (_ONE.format("tosa.clamp %arg0 {min_val = 1 : f16} : (tensor<2x3xi8>) -> tensor<2x3xi8>", "", ""),
         UnsupportedModel, "a limit of type float16"),
        (_ONE.format("tosa.clamp %arg0 {nan_mode = OTHER} : (tensor<2x3xi8>) -> tensor<2x3xi8>", "", ""),
         BadModel, "OTHER is none of UNKNOWN, PROPAGATE"),
        (_ONE.format("tosa.clamp %arg0 {a, a} : (tensor<2x3xi8>) -> tensor<2x3xi8>", "", ""), BadModel, "given twice"),
        (_ONE.format("tosa.clamp %arg0 {min_val} : (tensor<2x3xi8>) -> tensor<2x3xi8>", "", ""),
         BadModel, "has no value"),
        (_ONE.format("tosa.transpose %arg0 {perms = array<f32: 1> } : ()", "", ""), BadModel, "a list as array"),
        (_ONE.format("tosa.transpose %arg0 {perms = array<i32: 1, , 2>} : ()", "", ""),
         BadModel, "an entry that is no"),
        (_constant("dense<[[1, 2], [3, 4], [5, 6]]>"), BadModel, r":2:34: .* 6, are not in the lists .*\[2, 3\]"),
        (_constant("dense<[1, 2, 3]>"), BadModel, "not in the lists of its shape"),
        (_constant("dense<256>"), BadModel, "'256' is no number of type int8"),
        (_constant("dense<1.5>"), BadModel, "'1.5' is no number of type int8"),
        (_constant("dense<a>", "tensor<2xf32>"), BadModel, "'a' is no number"),
        (_constant('dense<"0x0102">'), BadModel, "is not the 6 B of its shape"),
        (_constant('dense<"0xzz">'), BadModel, "is not the 6 B of its shape"),
        ('func.func @f() { %0 = "tosa.const"() <{values = dense<1', BadModel, ":1:55: > is missing"),
        (_constant("sparse<1>"), BadModel, "dense or dense_resource is expected"),
        (_constant("dense 1"), BadModel, "< is expected"),
        (_constant("dense<1>", "tensor<?xi8>"), BadModel, "has an open axis"),
        (_constant("dense_resource<__elided__>"), BadModel, "resource '__elided__' is not in the text"),
        (_constant("dense_resource<a>", "tensor<2xi4>", '{-# dialect_resources: {builtin: {a: "0x"}} #-}'),
         UnsupportedModel, "4-bit numbers is ambiguous"),
        (_constant("dense<1>").replace("() -> tensor<2x3xi8>", "() -> tensor<6xi8>", 1),
         BadModel, "type of the constant"),
        ('func.func @f(%x: tensor<2xi8> {tosa.tensor_name = "a"}, %y: tensor<2xi8> {tosa.tensor_name = "a"}) {return}',
         BadModel, "the same tosa.tensor_name"),
        ('func.func @f(%x: tensor<2xi8> {tosa.tensor_name = 1}) { return }', BadModel, "a string is expected"),
        (b'func.func @f(%x: tensor<2xi8> {tosa.tensor_name = "\xff"}) { return }', BadModel, "is not UTF-8"),
        ("func.func f() { return }", BadModel, ":1:11: the name of the function is expected"),
        ("func.func @f(x) { return }", BadModel, ":1:14: a value is expected"),
        ('"func.func"() <{arg_attrs = [1]}> ({ return })', BadModel, "{ is expected, and the text has '1'"),
        (b"ML\xefR\x01", UnsupportedModel, "is MLIR bytecode"),
    ],
)  # fmt: skip
def test_text_that_is_refused(text: str | bytes, error: type[TvmExtError], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        _read(text, tmp_path)


def test_limits_of_sizes(tmp_path: Path) -> None:
    text = _constant("dense<1>", "tensor<2x3xi8>")
    for limits in ({"weights_bytes": 5}, {"nodes": 1}, {"fields": 2}, {"operands": 1}, {"text_bytes": 7}):
        (name,) = limits
        with pytest.raises(UnsupportedModel, match=f"the limit {name}"):
            _read(text, tmp_path, Limits(**limits))
    deep = "module attributes {a = " + "[" * 200_000 + "]" * 200_000 + "} { " + text + " }"
    assert len(_read(deep, tmp_path).nodes) == 2


def test_bytes_in_memory_are_known_by_their_content() -> None:
    text = _constant("dense<1>")
    commented = b"// a comment\nmodule {\n" + text.encode() + b"}"
    bodies = [load(data)["main"].script() for data in (text.encode(), commented)]
    assert bodies[0] == bodies[1]


def test_the_reference_model_refuses_text_with_a_way_out() -> None:
    with pytest.raises(BadModel, match=r"reads \.tosa files only; write one with tosa-opt --tosa-serialize"):
        run_reference("m.mlir", "", Limits().to_json(), [], [])


def test_damaged_text_raises_only_errors_of_ours(tmp_path: Path) -> None:
    tensors = {
        "x": ("int8", (2, 3), None),
        "c": ("int8", (2, 3), np.arange(6, dtype="i1")),
        "y": ("int8", (2, 3), None),
    }
    data = tosa_file(tensors, [Operator(name="MAXIMUM", inputs=["x", "c"], output="y")], ["x"], ["y"])
    graph, random, outcomes = _from_file(data, tmp_path), np.random.default_rng(5), list[str]()
    for is_generic in (False, True):
        text = _Writer(graph, is_generic=is_generic).text().encode()
        pieces = [text[:size] for size in range(1, len(text), 7)]
        for _ in range(400):
            changed = bytearray(text)
            for place in random.integers(0, len(text), 3):
                changed[place] = random.choice(np.frombuffer(b'{}()[]<>"%#:,=-0aQ\n\xff', "u1"))
            begin, end = sorted(random.integers(0, len(text), 2))
            pieces += [bytes(changed), text[:begin] + text[end:], text[:end] + text[begin:]]
        for piece in pieces:
            try:
                _read(piece, tmp_path)
                outcomes.append("read")
            except (BadModel, UnsupportedModel) as error:
                outcomes.append(type(error).__name__)
    assert {*outcomes} == {"read", "BadModel", "UnsupportedModel"}
