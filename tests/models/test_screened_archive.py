"""Screening of .pt2 archives: nothing of a file that torch, sympy or Python would run reaches them."""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.torch_models import nn, torch
from tvm_ext.core.errors import BadModel, TvmExtError, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pytorch import program_schema
from tvm_ext.frontends.pytorch.plain_json import Damaged
from tvm_ext.frontends.pytorch.program_schema import read_tree_spec
from tvm_ext.frontends.pytorch.screen_archive import ScreenedArchive, declaration_refusals, refusals, screened_archive
from tvm_ext.frontends.pytorch.symbolic_sizes import read_expression

Program = dict[str, Any]
MODEL, CONFIG = "models/model.json", "data/weights/model_weights_config.json"
CANARY = "canary_of_the_screen"


class Nested(nn.Module):
    """A dictionary and a keyword in; containers in one another, None and a size out; a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.Sequential(nn.BatchNorm2d(2), nn.ReLU())
        self.register_buffer("mean", torch.zeros(1, 2, 1, 1))

    def forward(self, values: dict[str, Any], *, scale: torch.Tensor) -> dict[str, Any]:
        x = self.norm(self.conv(values["image"])) * scale + values["rest"][0]
        self.mean.copy_(x.mean((2, 3), keepdim=True)[:1])
        rows = nn.functional.interpolate(x, scale_factor=1.5)
        return {"flat": x.reshape(x.shape[0] * 2, -1), "more": (rows, OrderedDict(a=x.split(1, 1)[0])), "none": None}


def arguments() -> tuple[tuple[dict[str, Any]], dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 1, 8, 8, generator=generator)
    return ({"image": image, "rest": [torch.ones(6)]},), {"scale": torch.tensor([2.0])}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given, named = arguments()
    shapes = {"values": {"image": {0: torch.export.Dim("batch")}, "rest": [None]}, "scale": None}
    path = tmp_path_factory.mktemp("nested") / "nested.pt2"
    torch.export.save(torch.export.export(Nested().eval(), given, named, dynamic_shapes=shapes), path)
    return path


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {member.split("/", 1)[1]: file.read(member) for member in file.namelist()}


def written(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            file.writestr(f"m/{name}", content)
    return path


def screened(path: Path) -> ScreenedArchive:
    return screened_archive(path, memoryview(path.read_bytes()), Limits())


def with_program(archive: Path, tmp_path: Path, change: Callable[[Program], object]) -> Path:
    entries = entries_of(archive)
    program = json.loads(entries[MODEL])
    change(program)
    return written(tmp_path / "changed.pt2", {**entries, MODEL: json.dumps(program).encode()})


def with_text(archive: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    entries = entries_of(archive)
    return written(tmp_path / "changed.pt2", {**entries, name: change(entries[name])})


def graph(program: Program) -> Program:
    return program["graph_module"]["graph"]


def call(program: Program) -> Program:
    return program["graph_module"]["module_call_graph"][0]["signature"]


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a file behind where it is imported, or called."""
    mark = tmp_path / "ran"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{CANARY}.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    monkeypatch.syspath_prepend(folder)
    yield mark
    sys.modules.pop(CANARY, None)
    assert not mark.exists()


def test_a_screened_archive_computes_the_same(archive: Path) -> None:
    given, named = arguments()
    expected = torch.utils._pytree.tree_leaves(torch.export.load(archive).module()(*given, **named))
    found = torch.utils._pytree.tree_leaves(torch.export.load(screened(archive).file).module()(*given, **named))
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_nothing_of_the_file_is_kept_as_it_was(archive: Path) -> None:
    entries = entries_of(archive)
    with zipfile.ZipFile(screened(archive).file) as file:
        kept = {name.split("/", 1)[1]: file.read(name) for name in file.namelist()}
    weights = {name for name in entries if name.startswith("data/weights/weight_")}
    assert kept.keys() == {MODEL, CONFIG, CONFIG.replace("weights", "constants"), "data/sample_inputs/model.pt",
                           "archive_format", "archive_version", "byteorder", ".data/version", *weights}  # fmt: skip
    assert kept["data/sample_inputs/model.pt"] == b"" and json.loads(kept[MODEL])["guards_code"] == []
    for node in graph(json.loads(kept[MODEL]))["nodes"]:
        assert node["metadata"].keys() <= {"nn_module_stack"}


def dictionary(context: object) -> str:
    """A specification of call with the context of a dictionary in it."""
    leaf = {"type": None, "context": None, "children_spec": []}
    inner = {"type": "builtins.dict", "context": context, "children_spec": [leaf]}
    given = {"type": "builtins.tuple", "context": "null", "children_spec": [inner]}
    named = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    return json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [given, named]}])


ENUM = {"__enum__": True, "fqn": f"{CANARY}:x", "name": "y"}
DEFAULT = {"__ddict__": True, "default_factory_module": CANARY, "default_factory_name": "x"}


@pytest.mark.parametrize("key", ["in_spec", "out_spec"])
@pytest.mark.parametrize("context", [[ENUM], ENUM, DEFAULT, [[ENUM]], [1], ["a", "a"], [None], "a", {"a": 1}])
@pytest.mark.parametrize("as_text", [True, False])
def test_contexts_import_nothing(
    key: str, context: object, as_text: bool, archive: Path, tmp_path: Path, canary: Path
) -> None:
    spec = dictionary(json.dumps(context) if as_text else context)
    path = with_program(archive, tmp_path, lambda program: call(program).__setitem__(key, spec))
    with pytest.raises(BadModel, match=r"changed\.pt2: models/model\.json in it is damaged: .*spec"):
        load(path)


@pytest.mark.parametrize("kind", ["collections.defaultdict", "collections.namedtuple", "collections.deque", CANARY])
def test_other_containers_are_not_taken(kind: str, archive: Path, tmp_path: Path, canary: Path) -> None:
    def change(text: bytes) -> bytes:
        return text.replace(rb"\"type\": \"builtins.dict\"", rb"\"type\" : \"%s\"" % kind.encode())

    with pytest.raises(UnsupportedModel, match="containers other than tuple, list and dict"):
        load(with_text(archive, tmp_path, MODEL, change))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("[1]", "no specification"),
        ('[2, {"type": null, "context": null, "children_spec": []}]', "no specification"),
        ('[1, {"type": null, "context": "null", "children_spec": []}]', "no leaf"),
        ('[1, {"type": ["builtins.list"], "context": "null", "children_spec": []}]', "no type"),
        ('[1, {"type": "builtins.list", "context": "null", "children_spec": {}}]', "no list of specifications"),
        ('[1, {"type": "builtins.list", "context": "[]", "children_spec": []}]', "not null"),
        ('[1, {"type": "builtins.dict", "context": "[]", "children_spec": [], "type": null}]', "twice"),
        ('[1, {"type": "builtins.dict", "context": "[\\"a\'+x\\"]", "children_spec": []}]', "no key"),
        ("[1, " + '{"type": "builtins.list", "context": "null", "children_spec": [' * 40 + "]}" * 40 + "]", "deep"),
        ("{" * 20_000, "more than"),
        (7, "no specification"),
    ],
)
def test_specifications(spec: object, reason: str) -> None:
    with pytest.raises(Damaged, match=reason):
        read_tree_spec(spec, "spec")


def test_arguments_are_a_tuple_and_named_ones(archive: Path, tmp_path: Path) -> None:
    leaf = '[1, {"type": null, "context": null, "children_spec": []}]'
    with pytest.raises(BadModel, match="no tuple of arguments"):
        screened(with_program(archive, tmp_path, lambda program: call(program).__setitem__("in_spec", leaf)))
    with pytest.raises(BadModel, match="its out_spec holds 1 values, its signature 4"):
        screened(with_program(archive, tmp_path, lambda program: call(program).__setitem__("out_spec", leaf)))
    with pytest.raises(BadModel, match="no name of an argument"):
        screened(with_text(archive, tmp_path, MODEL, lambda text: text.replace(rb"[\\\"scale\\\"]", rb"[\\\"a b\\\"]")))
    for signature in (None, []):
        with pytest.raises(BadModel, match=r"signature: .* is no object"):
            screened(
                with_program(
                    archive, tmp_path,
                    lambda p, new=signature: p["graph_module"]["module_call_graph"][0].__setitem__("signature", new),
                )
            )  # fmt: skip
    with pytest.raises(BadModel, match="0 entries are of the whole model"):
        screened(
            with_program(
                archive, tmp_path, lambda program: program["graph_module"].__setitem__("module_call_graph", [])
            )
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Symbol('s0', positive=True, integer=True)", "Symbol('s0', positive=True, integer=True)"),
        ("2*s0 + 1", "Add(Mul(Integer(2), Symbol('s0')), Integer(1))"),
        ("(s0 - 3)//2", "FloorDiv(Add(Symbol('s0'), Integer(-3)), Integer(2))"),
        ("-s1**2", "Mul(Integer(-1), Pow(Symbol('s1'), Integer(2)))"),
        ("Mul(Rational(1, 2), Pow(Symbol('s0', integer=True), Integer(-1)))",
         "Mul(Rational(1, 2), Pow(Symbol('s0', integer=True), Integer(-1)))"),
        ("TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s0'))))",
         "TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s0'))))"),
        ("Max(Integer(1), Symbol('u0'))", "Max(Integer(1), Symbol('u0'))"),
        ("GreaterThan(Symbol('u0', integer=True), Integer(0))", "GreaterThan(Symbol('u0', integer=True), Integer(0))"),
    ],
)  # fmt: skip
def test_sizes_are_rebuilt(text: str, expected: str) -> None:
    assert read_expression(text, "size") == expected
    assert read_expression(expected, "size") == expected


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9", "9**9", "Pow(9, Pow(9, 9))", "Pow(Integer(2), Symbol('s0'))", "s0**100", "Integer(s0)", "",
        "__import__('os').system('true')", "s0.__class__", "open('x')", "[1]", "lambda: 0", "s0 if s0 else 1", "x",
        "Symbol('x')", "Symbol('s0', commutative=False)", "Symbol('s0', integer=True, integer=True)", "Symbol(s0)",
        "Symbol('s0'", "Float('1e999999999', precision=53)", "Float('1.5', precision=99999999)", "Float('nan')",
        "Integer('1')", "sympify('1')", "factorial(9)", "Rational(1, 0)", "1.5", "9" * 30, "s0 s1", "s0 ;", "s0/2",
        "Add()", "FloorDiv(s0)", "Max(s0, s1)" * 9, "(" * 1000, "-" * 1000 + "1", "+".join(["s0"] * 1000), "s0\\",
        "*".join(["s0"] * 70), "Pow(Pow(Pow(s0, 8), 8), 8)", "f'{s0}'", "s99999", "evaluate=False", 7, None, ["s0"],
        "+".join(["Max(s0, s1, s2, s3)"] * 5), "'s0'", "s0 # x",
    ],
)  # fmt: skip
def test_other_sizes_are_refused(text: object) -> None:
    with pytest.raises(Damaged, match="size"):
        read_expression(text, "size")


def test_a_tower_of_powers_in_an_archive(archive: Path, tmp_path: Path) -> None:
    def change(program: Program) -> None:
        graph(program)["sym_int_values"]["sym_size_int_1"] = {"as_expr": {"expr_str": "9**9**9**9", "hint": None}}

    with pytest.raises(BadModel, match="symbolic size"):
        load(with_program(archive, tmp_path, change))


def sized(program: Program) -> Program:
    """The first node that computes with sizes."""
    return next(node for node in graph(program)["nodes"] if node["target"] == "_operator.mul")


def test_numbers_computed_from_sizes_are_bounded(archive: Path, tmp_path: Path) -> None:
    def doubling(program: Program) -> None:
        nodes, first = graph(program)["nodes"], sized(program)
        for at in range(40):
            value = {"as_sym_int": {"as_name": "mul" if at == 0 else f"power_{at - 1}"}}
            inputs = [{"name": name, "arg": value, "kind": 1} for name in "ab"]
            output = {"as_sym_int": {"as_name": f"power_{at}"}}
            nodes.append({**first, "inputs": inputs, "outputs": [output], "name": f"power_{at}"})

    def power(program: Program) -> None:
        sized(program).update(
            target="_operator.pow",
            inputs=[{"name": name, "arg": {"as_int": 10**9}, "kind": 1} for name in "ab"],
        )

    def of_a_tensor(program: Program) -> None:
        sized(program)["inputs"][0]["arg"] = {"as_tensor": {"name": "relu"}}

    for change, match in (
        (doubling, "a size may take"),
        (power, "the exponent"),
        (of_a_tensor, "takes numbers"),
        (lambda program: sized(program).update(inputs=[]), "has no arguments"),
        (lambda program: sized(program).update(target="_operator.pow"), None),
    ):
        path = with_program(archive, tmp_path, change)
        if match is None:
            screened(path)  # an exponent of two
        else:
            with pytest.raises(BadModel, match=match):
                screened(path)
    float_power = [{"name": "a", "arg": {"as_int": 2}}, {"name": "b", "arg": {"as_float": 0.5}}]
    with pytest.raises(BadModel, match="no whole number"):
        screened(
            with_program(
                archive, tmp_path, lambda program: sized(program).update(target="_operator.pow", inputs=float_power)
            )
        )


@pytest.mark.parametrize(
    "target",
    [
        "_operator.methodcaller", "_operator.attrgetter", "_operator.call", "_operator.getitem", "_operator.lshift",
        "math.factorial", "math.comb", "torch.sym_fresh_size", "torch.ops.aten.save.default", "torch.load",
        "torch.ops.aten.from_file.default", "torch.ops.aten.__class__.mro", "torch.ops.aten.add.__init__",
        "torch.ops.aten.__getitem__.str", "torch.ops.prim.Print.default", "#higher_order:x", "torch.ops.aten.add",
        "torch.ops.higher_order.cond", "torch.ops.load_library", "torch.ops.aten.add.Tensor.__class__",
        "torch.ops.aten.add.Tensor\n", "builtins.eval", "torch.os.system", "torch.ops.quantized_decomposed.add.relu",
    ],
)  # fmt: skip
def test_targets_that_are_not_looked_up(target: str) -> None:
    assert list(refusals([target])) == [target]


def test_targets_that_are_looked_up() -> None:
    taken = (
        "_operator.mul", "math.trunc", "torch.sym_max", "torch.ops.aten.add.Tensor", "torch.ops.aten.__and__.Tensor",
        "torch.ops.aten._softmax.default", "torch.ops.aten.add_.Tensor", "torch.ops.aten.sym_size.int",
        "torch.ops.quantized_decomposed.quantize_per_tensor.default", "torch.ops.aten._assert_scalar.default",
        "torch.ops.aten.conv2d.padding", "torch.ops.aten.gelu.default", "torch.ops.aten.zeros.default",
        "torch.ops.aten.split.Tensor", "torch.ops.aten.einsum.default", "torch.ops.aten._to_copy.default",
        "torch.ops.aten._assert_tensor_metadata.default", "torch.ops.aten.arange.start_step",
    )  # fmt: skip
    assert refusals(taken) == {} == declaration_refusals(torch, taken)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("_dir.append", "no such operator"), ("nothing.default", "no such operator"),
        ("add.nothing", "no such operator"), ("add.overloads", "no such operator"),
        ("factorial.int", "tensors from tensors"),
        ("ljust.default", "tensors from tensors"), ("warn.default", "tensors from tensors"),
        ("_print.default", "tensors from tensors"), ("mul.left_t", "tensors from tensors"),
        ("set_.source_Storage", "tensors from tensors"), ("append.t", "tensors from tensors"),
        ("manual_seed.default", "tensors from tensors"), ("list.t", "tensors from tensors"),
    ],
)  # fmt: skip
def test_operators_that_do_more_than_compute(target: str, reason: str) -> None:
    name = f"torch.ops.aten.{target}"
    assert refusals([name]) == {} and reason in declaration_refusals(torch, [name])[name]


def test_operators_are_judged_before_torch_loads(archive: Path, tmp_path: Path) -> None:
    def change(program: Program) -> None:
        graph(program)["nodes"][-1]["target"] = "torch.ops.aten.warn.default"

    with pytest.raises(UnsupportedModel, match=r"aten\.warn\.default: only operators of ATen"):
        load(with_program(archive, tmp_path, change))


INJECTED = "x=__import__('os').system('true')"


@pytest.mark.parametrize("name", [INJECTED, "a b", "a\nimport os", "class", "a.b", "", 7, None, "a" * 2000, "a\u202e"])
def test_names_become_no_code(name: object, archive: Path, tmp_path: Path) -> None:
    """torch pastes names of values into the source of a Python function, and runs that."""

    def node(program: Program) -> None:
        graph(program)["nodes"][2]["outputs"] = [{"as_tensor": {"name": name}}]

    def placeholder(program: Program) -> None:
        graph(program)["inputs"][0] = {"as_tensor": {"name": name}}

    for change in (node, placeholder):
        with pytest.raises(BadModel, match="is no identifier"):
            screened(with_program(archive, tmp_path, change))


def test_the_default_of_a_parameter_is_no_code(archive: Path, tmp_path: Path, canary: Path) -> None:
    """Everywhere under one name, so that the archive is sound: torch would define `def forward(self, NAME)`."""
    name = f"scale=__import__('{CANARY}')".encode()
    with pytest.raises(BadModel, match="is no identifier"):
        load(with_text(archive, tmp_path, MODEL, lambda text: text.replace(b'"scale"', b'"' + name + b'"')))


@pytest.mark.parametrize("name", ['a"+__import__("os")', "__class__.x", "a.__dict__", "a..b", "", "a\n", "a'b", "a\\b"])
def test_names_of_parameters(name: str, archive: Path, tmp_path: Path) -> None:
    def change(program: Program) -> None:
        program["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = name

    with pytest.raises(BadModel, match="is no name of words"):
        screened(with_program(archive, tmp_path, change))


def meta(program: Program) -> Program:
    return graph(program)["tensor_values"]["relu"]


ANY = {"name": "a", "arg": {"as_none": True}}
DAMAGE: dict[str, Callable[[Program], object]] = {
    "dtype as a list": lambda p: meta(p).__setitem__("dtype", [7]),
    "dtype as an object": lambda p: meta(p).__setitem__("dtype", {"a": 7}),
    "dtype as a flag": lambda p: meta(p).__setitem__("dtype", True),
    "dtype unknown": lambda p: meta(p).__setitem__("dtype", 99),
    "a device of another kind": lambda p: meta(p).__setitem__("device", {"type": "meta"}),
    "sizes as text": lambda p: meta(p).__setitem__("sizes", "abc"),
    "a size of thirty digits": lambda p: meta(p)["sizes"].__setitem__(0, {"as_int": 10**30}),
    "a size as a flag": lambda p: meta(p)["sizes"].__setitem__(0, {"as_int": True}),
    "two kinds at once": lambda p: meta(p)["sizes"].__setitem__(0, {"as_int": 1, "as_expr": None}),
    "a hint as text": lambda p: meta(p)["sizes"].__setitem__(0, {"as_expr": {"expr_str": "s0", "hint": "2"}}),
    "a symbol to count to": lambda p: p["range_constraints"].__setitem__("u99999999", {"min_val": 0, "max_val": 1}),
    "a range of text": lambda p: p["range_constraints"].__setitem__("s0", {"min_val": "0", "max_val": None}),
    "another verifier": lambda p: p["verifiers"].append(CANARY),
    "verifiers as an object": lambda p: p.__setitem__("verifiers", {}),
    "a version of text": lambda p: p["schema_version"].__setitem__("major", "8"),
    "a flag as a number": lambda p: meta(p).__setitem__("requires_grad", 1),
    "no graph": lambda p: p["graph_module"].__setitem__("graph", []),
    "a float of text": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "arg": {"as_float": "1e5"}}),
    "a float of no bound": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "arg": {"as_float": 10**400}}),
    "a kind of text": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "kind": "1"}),
    "a name of an argument": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "name": "a b"}),
    "text with controls": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "arg": {"as_string": "a\x1b"}}),
    "half a character": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "arg": {"as_string": "\ud800"}}),
    "a constant of code": lambda p: p["graph_module"]["signature"]["input_specs"].append(
        {"constant_input": {"name": "a", "value": {"as_string": "' or x()"}}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(damage: str, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"changed\.pt2: models/model\.json in it is damaged: \$\."):
        screened(with_program(archive, tmp_path, DAMAGE[damage]))


UNSUPPORTED: dict[str, Callable[[Program], object]] = {
    "a graph as a value": lambda p: graph(p)["nodes"][0]["inputs"].append(
        {**ANY, "arg": {"as_graph": {"name": "g", "graph": json.loads(json.dumps(graph(p)))}}}
    ),
    "an operator as a value": lambda p: graph(p)["nodes"][0]["inputs"].append(
        {**ANY, "arg": {"as_operator": "torch.load"}}
    ),
    "a complex number": lambda p: graph(p)["nodes"][0]["inputs"].append({**ANY, "arg": {"as_complex": {}}}),
    "a custom object": lambda p: graph(p)["custom_obj_values"].__setitem__("a", {"name": "a", "class_fqn": CANARY}),
    "a custom object as an input": lambda p: p["graph_module"]["signature"]["input_specs"].append({"custom_obj": {}}),
    "a loss": lambda p: p["graph_module"]["signature"]["output_specs"].append({"loss_output": {}}),
    "a sparse tensor": lambda p: meta(p).__setitem__("layout", 1),
}


@pytest.mark.parametrize("damage", UNSUPPORTED)
def test_values_that_are_not_taken(damage: str, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"changed\.pt2: models/model\.json in it: \$.*: .* compiled"):
        screened(with_program(archive, tmp_path, UNSUPPORTED[damage]))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda text: b"\xef\xbb\xbf" + text, "BOM"),
        (lambda text: text.decode().encode("utf-16"), "not UTF-8"),
        (lambda text: text.decode().encode("utf-32-le"), "damaged"),
        (lambda text: text.replace(b'"schema_version"', b'"schema_version": {}, "schema_version"', 1), "twice"),
        (lambda text: text.replace(b'"is_single_tensor_return": false', b'"is_single_tensor_return": NaN', 1), "NaN"),
        (lambda text: text.replace(b'"as_int": 2', b'"as_int": ' + b"2" * 5000, 1), "damaged"),
        (lambda text: b"[" * 100_000, "nested too deeply"),
        (lambda text: b"[]", "no object"),
        (lambda text: text + b"{}", "Extra data"),
    ],
)
def test_json_is_strict(change: Callable[[bytes], bytes], match: str, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=match):
        screened(with_text(archive, tmp_path, MODEL, change))


def test_metadata_of_nodes_is_shown_and_nothing_else(archive: Path, tmp_path: Path, canary: Path) -> None:
    hostile = {
        "source_fn_stack": f"a,torch.{CANARY}", "from_node": "[{}]", "custom": "{}", "torch_fn": "a;b",
        "stack_trace": "x", "nn_module_stack": "a,__class__.b'c,d",
    }  # fmt: skip

    def change(program: Program) -> None:
        for node in graph(program)["nodes"]:
            node["metadata"] = hostile

    with zipfile.ZipFile(screened(with_program(archive, tmp_path, change)).file) as file:
        nodes = graph(json.loads(file.read("model/models/model.json")))["nodes"]
    assert all(node["metadata"] == {} for node in nodes)


@pytest.mark.parametrize(
    ("entry", "content", "match"),
    [
        ("byteorder", b"big", "byteorder in it is b'big'"),
        ("archive_format", b"pt3", "archive_format in it"),
        ("archive_version", b"99", "archive_version in it"),
    ],
)
def test_marks(entry: str, content: bytes, match: str, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=match):
        screened(with_text(archive, tmp_path, entry, lambda _: content))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_entries_that_are_there_twice(archive: Path, tmp_path: Path) -> None:
    entries = entries_of(archive)
    path = written(tmp_path / "twice.pt2", entries)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(f"m/{MODEL}", b"{}")
    with pytest.raises(BadModel, match=r"two entries called 'm/models/model\.json'"):
        screened(path)
    path = written(tmp_path / "roots.pt2", entries)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(f"other/{MODEL}", b"{}")
    with pytest.raises(BadModel, match="do not lie in one folder"):
        screened(path)


def test_libraries_and_legacy_pickles_in_the_archive_are_left_out(archive: Path, tmp_path: Path) -> None:
    more = {
        "data/aotinductor/model/x.so": b"\x7fELF", "data/weights/model.pt": b"\x80", "data/constants/model.pt": b"\x80",
        "extra/x": b"y", "models/other.json": b"{}", "../../x": b"y",
    }  # fmt: skip
    path = written(tmp_path / "more.pt2", {**entries_of(archive), **more})
    with zipfile.ZipFile(screened(path).file) as file:
        assert not {f"model/{name}" for name in more} & set(file.namelist())


@pytest.mark.parametrize("name", ["../weight_0", "weight_0/../../x", "opaque_obj_0", "custom_obj_0", "weight_é/"])
def test_paths_of_weights(name: str, archive: Path, tmp_path: Path) -> None:
    def change(text: bytes) -> bytes:
        return text.replace(b'"weight_0"', json.dumps(name).encode())

    with pytest.raises(TvmExtError, match=r"no name of a file|kept as a Python object"):
        screened(with_text(archive, tmp_path, CONFIG, change))


def test_sizes_of_weights(archive: Path, tmp_path: Path) -> None:
    for old, new, match in (
        (b'"dtype": 7', b'"dtype": [7]', "is not one of"),
        (b'"as_int": 9', b'"as_int": -9', "no whole number"),
        (b'"as_int": 9', b'"as_expr": {"expr_str": "9", "hint": null}', "none of as_int"),
    ):
        with pytest.raises(BadModel, match=f"model_weights_config.*{match}"):
            screened(with_text(archive, tmp_path, CONFIG, lambda text, old=old, new=new: text.replace(old, new, 1)))


def test_what_torch_cannot_decompose(archive: Path, tmp_path: Path) -> None:
    def change(program: Program) -> None:
        (node,) = (node for node in graph(program)["nodes"] if node["target"] == "torch.ops.aten.reshape.default")
        node["inputs"][1]["arg"] = {"as_ints": [7, 11]}

    with pytest.raises(BadModel, match="torch cannot decompose its operators"):
        load(with_program(archive, tmp_path, change))


def test_the_fields_are_those_of_the_schema_of_torch() -> None:
    """A new kind of value in torch's schema is to be judged here, too."""
    from torch._export.serde import schema

    assert schema.SCHEMA_VERSION[0] == 8
    members = {field.name for field in dataclasses.fields(schema.Argument)}
    assert members == set(program_schema._VALUES)
    assert {int(kind) for kind in schema.ScalarType} == {0, *program_schema.ELEMENT_BYTES}
    hints = typing.get_type_hints(schema.SymInt)
    assert set(hints) - {"_type"} == {"as_expr", "as_int"}


def test_containers_and_constants_load(tmp_path: Path) -> None:
    class Pairs(nn.Module):
        def forward(self, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], times: int, how: str) -> torch.Tensor:
            return pair[0] * times + pair[1]["b"] if how == "add" else pair[0]

    given = ((torch.ones(1, 3), OrderedDict(b=torch.ones(1, 3))), 3, "add")
    path = tmp_path / "pairs.pt2"
    torch.export.save(torch.export.export(Pairs(), given), path)
    program = torch.export.load(screened(path).file)
    np.testing.assert_array_equal(program.module()(*given).numpy(), np.full((1, 3), 4.0))
