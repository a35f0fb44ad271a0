"""Damage to the JSON of .pt2 archives by what torch does with it: containers, sizes, names, operators, pickles.

Most changes try to run something: a module that is imported, an expression that is evaluated, a name that becomes code,
an operator that writes a file. The canary sees the attempt where one gets through.
"""

from __future__ import annotations

import json
import random
from typing import Any

from benchmarks.fuzzing.canary import MODULE
from benchmarks.fuzzing.mutate_tree import INTEGERS, STRINGS, mutate_tree, special

Program = dict[str, Any]

_CODE = (
    f"__import__('{MODULE}')", f"x=__import__('{MODULE}')", "__import__('os').system('true')",
    f"a):\n import {MODULE}#",
    "open('written','w')", f'a"]+__import__("{MODULE}")+["',
    "lambda: 0", "__class__.__base__", "class", "a.b", "self",
)  # fmt: skip
_EXPRESSIONS = (
    *_CODE, "9**9**9**9", "Pow(Integer(9), Pow(Integer(9), Integer(9)))", "s0**s0", "s0 + 1", "2*s0", "Symbol('s0')",
    "Symbol('s0', integer=False)", "Integer(3)", "Float('1e999999', precision=99999)", "factorial(99999)", "s0/0",
    "FloorDiv(Symbol('s0', integer=True), Integer(0))", "Mod(s0, 0)", "Max(s0, s1)", "(" * 500, "s9999", "u9999", "",
    "Mul(" + ", ".join(["Symbol('s0')"] * 60) + ")", "-1", "0", "1.5", "Rational(1, 3)", "I", "oo", "zoo", "nan", "E",
)  # fmt: skip
_CONTEXTS: tuple[Any, ...] = (
    [{"__enum__": True, "fqn": f"{MODULE}:x", "name": "y"}], {"__enum__": True, "fqn": "os:system", "name": "true"},
    {"default_factory_module": MODULE, "default_factory_name": "x", "dict_context": []}, [1], ["a", "a"], [None], {},
    "null", None, [[]], ["x"] * 50,
)  # fmt: skip
_KINDS = (
    "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.defaultdict",
    "collections.namedtuple", "collections.deque", "torch.Size", "torch.fx.immutable_collections.immutable_list",
    MODULE,
)  # fmt: skip
_TARGETS = (
    "_operator.methodcaller", "_operator.attrgetter", "_operator.call", "_operator.pow", "_operator.mul",
    "math.factorial",     "torch.ops.aten.save.default", "torch.ops.aten.from_file.default", "torch.load",
    "torch.hub.load",
    "torch.ops.load_library",
    "torch.ops.aten.warn.default", "torch.ops.aten.__class__.mro", "torch.ops.aten.add.Tensor",
    "torch.ops.aten.relu.default",
    "torch.ops.aten.add.out", "torch.ops.higher_order.cond", "#x:y", "torch.os.system", "torch.ops.aten.sum.default",
    "torch.ops.aten.reshape.default", "torch.ops.aten.empty.memory_format", "torch.ops.aten.repeat.default",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    {"as_int": 2**63 - 1}, {"as_int": -(2**63)}, {"as_float": "NaN"}, {"as_string": "written"}, {"as_none": True},
    {"as_operator": "torch.load"}, {"as_graph": {}}, {"as_custom_obj": {"name": "x", "class_fqn": "y"}},
    {"as_ints": []},
    {"as_ints": [2**40] * 8}, {"as_sym_int": {"as_name": "x"}}, {"as_bool": True}, {"as_scalar_type": 99}, {},
    {"as_device": {"type": "meta", "index": None}}, {"as_tensor": {"name": "x"}}, {"as_strings": ["a"]},
    {"as_complex": {"real": 1.0, "imag": 1.0}}, {"as_layout": 1}, {"as_tensors": []}, {"as_floats": [1e308]},
)  # fmt: skip
_PATHS = ("../weight_0", "opaque_obj_0", "custom_obj_0", "/etc/passwd", "weight_99", "weight_0")
_DTYPES: tuple[Any, ...] = ([7], {"a": 7}, None, 7.0, True, "7", 0, 1, 5, 6, 8, 12, 13, 29, 99, -1)


def mutate_program(content: bytes, rng: random.Random) -> bytes:
    """The JSON of an archive with one to three such changes; now and then as other text of the same values."""
    tree = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not isinstance(tree, dict):
            break
        try:
            tree = rng.choice(_CHANGES)(tree, rng) or tree
        except (LookupError, TypeError, AttributeError):  # an earlier change took what this one wanted
            tree = mutate_tree(tree, rng)
    return _as_text(tree, rng)


def _as_text(tree: Any, rng: random.Random) -> bytes:
    """The values as JSON, now and then in another encoding, with a key twice, or with other blanks."""
    try:
        text = json.dumps(tree)
    except RecursionError:
        text = "[" * 5000 + "]" * 5000
    way = rng.random()
    if way < 0.9:
        return text.encode("utf-8", "surrogatepass")
    if way < 0.92:
        return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
    if way < 0.94:
        return text.encode(rng.choice(("utf-16", "utf-32")), "surrogatepass")
    if way < 0.97:
        key = rng.choice(('"graph_module": ', '"name": ', '"expr_str": ', '"in_spec": '))
        twice = f"{key}{json.dumps(rng.choice(_CODE))}, {key}"
        return text.replace(key, twice, 1).encode("utf-8", "surrogatepass")
    return text.replace('": ', '" : ').replace(r"\": ", r"\"\t:").encode("utf-8", "surrogatepass")


def _graph(program: Program) -> Program:
    return program["graph_module"]["graph"]


def _container(program: Program, rng: random.Random) -> None:
    call = program["graph_module"]["module_call_graph"][0]["signature"]
    key = rng.choice(("in_spec", "out_spec"))
    protocol, spec = json.loads(call[key])
    nodes = [spec]
    for node in nodes:
        nodes += node["children_spec"]
    node = rng.choice(nodes)
    way = rng.random()
    if way < 0.5:
        context = rng.choice(_CONTEXTS)
        node["context"] = json.dumps(context) if rng.random() < 0.7 else context
    elif way < 0.8:
        node["type"] = rng.choice(_KINDS)
    else:
        node["children_spec"] = [*node["children_spec"], *node["children_spec"]][: rng.randrange(4)]
    call[key] = json.dumps([protocol, spec])


def _size(program: Program, rng: random.Random) -> None:
    metas = list(_graph(program)["tensor_values"].values())
    meta = rng.choice(metas)
    size = {
        "as_expr": {"expr_str": rng.choice(_EXPRESSIONS), "hint": rng.choice((None, {"as_int": 2}, {"as_bool": True}))}
    }
    if rng.random() < 0.3:
        _graph(program)["sym_int_values"][rng.choice(("s", "x", _CODE[0]))] = size
    elif meta["sizes"]:
        meta["sizes"][rng.randrange(len(meta["sizes"]))] = (
            size if rng.random() < 0.7 else {"as_int": rng.choice(INTEGERS)}
        )


def _dtype(program: Program, rng: random.Random) -> None:
    meta = rng.choice(list(_graph(program)["tensor_values"].values()))
    meta[rng.choice(("dtype", "layout", "requires_grad", "device", "strides", "storage_offset"))] = rng.choice(_DTYPES)


def _name(program: Program, rng: random.Random) -> None:
    names = [node for node in _graph(program)["nodes"] if node["outputs"]]
    new = rng.choice((*_CODE, *STRINGS))
    way = rng.random()
    if way < 0.4:
        rng.choice(names)["outputs"][0] = {"as_tensor": {"name": new}}
    elif way < 0.6:
        rng.choice(names)["name"] = new
    elif way < 0.8:
        rng.choice(_graph(program)["inputs"])["as_tensor"]["name"] = new
    else:
        spec = rng.choice(program["graph_module"]["signature"]["input_specs"])
        for value in spec.values():
            for key in value:
                if key.endswith("_name"):
                    value[key] = new


def _operator(program: Program, rng: random.Random) -> None:
    node = rng.choice(_graph(program)["nodes"])
    node["target"] = rng.choice(_TARGETS) if rng.random() < 0.8 else special(node["target"], rng)
    if rng.random() < 0.4:
        node["inputs"] = [{"name": name, "arg": rng.choice(_VALUES), "kind": 1} for name in ("self", "filename")]


def _argument(program: Program, rng: random.Random) -> None:
    node = rng.choice([node for node in _graph(program)["nodes"] if node["inputs"]])
    rng.choice(node["inputs"])["arg"] = rng.choice(_VALUES)


def _elsewhere(program: Program, rng: random.Random) -> None:
    way = rng.randrange(5)
    if way == 0:
        program["range_constraints"][rng.choice(("s0", "u99999999", "u9", "x", *_CODE[:2]))] = {
            "min_val": rng.choice(INTEGERS), "max_val": rng.choice((None, *INTEGERS)),
        }  # fmt: skip
    elif way == 1:
        program["guards_code"] = [rng.choice(_CODE)]
    elif way == 2:
        program["verifiers"] = [rng.choice(("ATEN", "TRAINING", "EDGE", MODULE, ["ATEN"]))]
    elif way == 3:
        metadata = rng.choice(_graph(program)["nodes"])["metadata"]
        key = rng.choice(("source_fn_stack", "nn_module_stack", "from_node", "custom", "torch_fn", "stack_trace"))
        metadata[key] = rng.choice((*_CODE, f"a,torch.{MODULE}", "a,b,c", "[]", "[{}]", "a;b;c"))
    else:
        node = rng.choice(_graph(program)["nodes"])
        _graph(program)["nodes"] += [node] * rng.choice((1, 2, 300))


_CHANGES = (
    _container,
    _container,
    _size,
    _size,
    _dtype,
    _name,
    _name,
    _operator,
    _operator,
    _argument,
    _elsewhere,
    mutate_tree,
)


def mutate_config(content: bytes, rng: random.Random) -> bytes:
    """The list of an archive's weights or constants: pickles, paths, sizes, types."""
    tree = json.loads(content)
    entries = list(tree["config"].values())
    if not entries or rng.random() < 0.2:
        return _as_text(mutate_tree(tree, rng), rng) if entries else content
    entry = rng.choice(entries)
    way = rng.randrange(5)
    if way == 0:
        entry["use_pickle"] = rng.choice((True, 1, "true"))
    elif way == 1:
        entry["path_name"] = rng.choice(_PATHS)
    elif way == 2:
        entry["tensor_meta"]["dtype"] = rng.choice(_DTYPES)
    elif way == 3:
        entry["tensor_meta"]["sizes"] = [{"as_int": rng.choice(INTEGERS)} for _ in range(rng.randrange(4))]
    else:
        entry["tensor_meta"]["storage_offset"] = {"as_int": rng.choice(INTEGERS)}
    return _as_text(tree, rng)
