"""The JSON of an exported program, with a reader for each part of torch's schema.

torch looks up the class that a specification names, and parses the context of a container with a hook that imports any
module and takes any of its attributes. So only builtin containers are taken here, whose contexts are null or lists of
strings. Nothing of the original text is kept.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ext.frontends.pytorch.plain_json import (
    Damaged,
    NotTaken,
    Reader,
    always,
    an_object,
    flag,
    many,
    not_taken,
    number,
    one_of,
    or_null,
    parse_json,
    record,
    shown,
    table,
    text,
    union,
    whole,
)
from tvm_ext.frontends.pytorch.symbolic_sizes import SYMBOL, read_expression

_PROTOCOL = 1
_MOST_DEPTH, _MOST_NODES = 32, 10_000
_SEQUENCES = ("builtins.tuple", "builtins.list")
_MAPPINGS = ("builtins.dict", "collections.OrderedDict")
_KEY = text(r"[\w .:/-]*", meaning="key of letters, digits, spaces and .:/-", most=200)


@dataclass(frozen=True, kw_only=True)
class TreeSpec:
    """A container, or a leaf where kind is None.

    keys: of a mapping, one for each child.
    """

    kind: str | None
    keys: tuple[str, ...] = ()
    children: tuple[TreeSpec, ...] = ()

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(child.num_leaves for child in self.children)

    def to_text(self) -> str:
        """Return the specification in torch's form."""
        return json.dumps([_PROTOCOL, self._plain()])

    def _plain(self) -> dict[str, Any]:
        if self.kind is None:
            return {"type": None, "context": None, "children_spec": []}
        context = json.dumps(list(self.keys) if self.kind in _MAPPINGS else None)
        return {"type": self.kind, "context": context, "children_spec": [child._plain() for child in self.children]}


def read_tree_spec(value: Any, where: str) -> TreeSpec:
    """Read a specification of torch.utils._pytree.treespec_dumps. Raises Damaged, NotTaken."""
    if not isinstance(value, str):
        raise Damaged(f"{where}: {shown(value)} is no specification of containers")
    if value.count("{") > _MOST_NODES:
        raise Damaged(f"{where}: it describes more than {_MOST_NODES} containers and leaves")
    parsed = _parsed(value, where)
    if not isinstance(parsed, list) or len(parsed) != 2 or parsed[0] != _PROTOCOL:
        raise Damaged(f"{where}: {shown(value)} is no specification of containers")
    return _read(parsed[1], where, 0)


def read_arguments_spec(value: Any, where: str) -> TreeSpec:
    """Read the specification of a call: a tuple of arguments, and a dict of named arguments."""
    spec = read_tree_spec(value, where)
    kinds = [child.kind for child in spec.children]
    if spec.kind != "builtins.tuple" or kinds != ["builtins.tuple", "builtins.dict"]:
        raise Damaged(f"{where}: it is no tuple of arguments and a dict of those with names")
    for key in spec.children[1].keys:  # torch creates parameters of a Python function from them
        if not key.isidentifier():
            raise Damaged(f"{where}: {shown(key)} is no name of an argument")
    return spec


def _read(value: Any, where: str, depth: int) -> TreeSpec:
    if depth > _MOST_DEPTH:
        raise Damaged(f"{where}: its containers are nested more than {_MOST_DEPTH} deep")
    found = an_object(value, where)
    kind, context, children = found.get("type"), found.get("context"), found.get("children_spec")
    if not isinstance(children, list):
        raise Damaged(f"{where}: {shown(children)} is no list of specifications")
    if kind is None:
        if context is not None or children:
            raise Damaged(f"{where}: {shown(value)} is no leaf")
        return TreeSpec(kind=None)
    if not isinstance(kind, str):
        raise Damaged(f"{where}: {shown(kind)} is no type")
    if kind not in (*_SEQUENCES, *_MAPPINGS):
        raise NotTaken(f"{where}: {shown(kind)}; it takes or returns containers other than tuple, list and dict")
    keys = _keys(context, kind, where)
    if kind in _MAPPINGS and len(keys) != len(children):
        raise Damaged(f"{where}: {len(keys)} keys name {len(children)} values")
    read = tuple(_read(child, where, depth + 1) for child in children)
    return TreeSpec(kind=kind, keys=keys, children=read)


def _keys(context: Any, kind: str, where: str) -> tuple[str, ...]:
    """Return the keys of a mapping from its context. A sequence has the context null."""
    value = _parsed(context, where) if isinstance(context, str) else context
    if kind in _SEQUENCES:
        if value is not None:
            raise Damaged(f"{where}: the context of {kind} is {shown(value)}, not null")
        return ()
    if not isinstance(value, list):
        raise Damaged(f"{where}: the context of {kind} is {shown(value)}, not a list of strings")
    keys = tuple(_KEY(key, where) for key in value)
    if len(set(keys)) < len(keys):
        raise Damaged(f"{where}: a key of {kind} is there twice")
    return keys


def _parsed(value: str, where: str) -> Any:
    try:
        return parse_json(value.encode())
    except (Damaged, UnicodeEncodeError) as error:
        raise Damaged(f"{where}: {error}") from None


ELEMENT_BYTES: Mapping[int, int] = {
    **dict.fromkeys((1, 2, 12, 29, 30, 31, 32, 33), 1), **dict.fromkeys((3, 6, 13, 28), 2),
    **dict.fromkeys((4, 7, 9, 34), 4), **dict.fromkeys((5, 8, 10, 35), 8), 11: 16,
}  # fmt: skip
"""Bytes of an element, by torch's number for its type."""

_STRIDED = 7
_HOST = {"type": "cpu", "index": None}
_WORD = r"(?!__)[\w@/: -]+"
_NAMED_PARTS = text(rf"{_WORD}(\.{_WORD})*", meaning="name of words with dots between them")
_ANY_TEXT = text(r"[^\x00-\x08\x0e-\x1f\ud800-\udfff]*", meaning="plain text", most=10_000)
_SHORT_TEXT = text(r"[\w.-]*", meaning="text of letters, digits, dots and dashes")


def _identifier(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > 1000 or not value.isidentifier() or keyword.iskeyword(value):
        raise Damaged(f"{where}: {shown(value)} is no identifier")
    return value


def _layout(value: Any, where: str) -> int:
    if value != _STRIDED or type(value) is not int:
        raise NotTaken(f"{where}: {shown(value)}: only dense tensors are compiled")
    return value


def _device(value: Any, where: str) -> dict[str, Any]:
    """Read any of torch's devices as the processor of this machine, because only shapes and constants lie there."""
    one_of(("cpu", "cuda", "mps", "xpu"))(an_object(value, where).get("type"), f"{where}.type")
    return _HOST


def _modules(value: Any, where: str) -> dict[str, str]:
    """Read a node's metadata: the modules that contain it, from the whole model inward, which only name it."""
    stack = an_object(value, where).get("nn_module_stack")
    paths = [item.split(",")[1:2] for item in stack.split(";")] if isinstance(stack, str) else []
    try:
        read = [_NAMED_PARTS(path, where) if path else "" for (path,) in paths]
    except (Damaged, ValueError):  # the name is only displayed, and the operator has a name of its own
        return {}
    return (
        {"nn_module_stack": ";".join(f"module_{at},{path},torch.nn.Module" for at, path in enumerate(read))}
        if read
        else {}
    )


_HINT = or_null(union({"as_int": whole(), "as_bool": flag, "as_float": number}))
_EXPRESSION = record({"expr_str": read_expression, "hint": _HINT}, {"hint": None})
_SYM_INT = union({"as_expr": _EXPRESSION, "as_int": whole()})
_SYM_FLOAT = union({"as_expr": _EXPRESSION, "as_float": number})
_SYM_BOOL = union({"as_expr": _EXPRESSION, "as_bool": flag})


def _tensor_meta(extent: Reader, distance: Reader) -> Reader:
    return record(
        {
            "dtype": one_of(tuple(ELEMENT_BYTES)), "sizes": many(extent), "requires_grad": flag, "device": _device,
            "strides": many(distance), "storage_offset": distance, "layout": _layout,
        }
    )  # fmt: skip


_TENSOR = record({"name": _identifier})
_INT_ARGUMENT = union({"as_name": _identifier, "as_int": whole()})
_FLOAT_ARGUMENT = union({"as_name": _identifier, "as_float": number})
_BOOL_ARGUMENT = union({"as_name": _identifier, "as_bool": flag})
_OPTIONAL_TENSOR = union({"as_tensor": _TENSOR, "as_none": flag})
_NO_FUNCTION = not_taken("operators as values and custom objects are not compiled")
_MOST_GRAPHS = 16
_TOO_DEEP = not_taken(f"graphs within graphs nest deeper than {_MOST_GRAPHS}")


def _inner_graph(value: Any, where: str) -> dict[str, Any]:
    """Read a graph within a graph, which `with_inlined_branches` replaces."""
    return (_TOO_DEEP if where.count(".as_graph") > _MOST_GRAPHS else _GRAPH)(value, where)


_FUNCTION = record({"name": _identifier, "graph": _inner_graph})
_RARE = not_taken("values of this kind are not compiled")
_DTYPE = one_of((0, *ELEMENT_BYTES))
_VALUES: Mapping[str, Reader] = {
    "as_none": flag, "as_tensor": _TENSOR, "as_tensors": many(_TENSOR), "as_int": whole(), "as_ints": many(whole()),
    "as_float": number, "as_floats": many(number), "as_string": _ANY_TEXT, "as_strings": many(_ANY_TEXT),
    "as_sym_int": _INT_ARGUMENT, "as_sym_ints": many(_INT_ARGUMENT), "as_scalar_type": _DTYPE,
    "as_memory_format": one_of((1, 2, 3, 4)), "as_layout": _layout, "as_device": _device, "as_bool": flag,
    "as_bools": many(flag), "as_sym_bool": _BOOL_ARGUMENT, "as_sym_bools": many(_BOOL_ARGUMENT),
    "as_graph": _FUNCTION, "as_optional_tensors": many(_OPTIONAL_TENSOR), "as_custom_obj": _NO_FUNCTION,
    "as_operator": _NO_FUNCTION, "as_sym_float": _FLOAT_ARGUMENT, "as_sym_floats": many(_FLOAT_ARGUMENT),
    "as_optional_tensor": _OPTIONAL_TENSOR, "as_complex": _RARE, "as_nested_tensors": _RARE, "as_int_lists": _RARE,
    "as_string_to_argument": _RARE, "as_float_lists": _RARE,
}  # fmt: skip
_ARGUMENT = union(_VALUES)
_PORT = union({**_VALUES, "as_string": _SHORT_TEXT, "as_strings": many(_SHORT_TEXT)})
_NODE_ARGUMENT = record(
    {"name": text(r"\w*", meaning="name of an argument"), "arg": _ARGUMENT, "kind": or_null(one_of((0, 1, 2)))},
    {"kind": None},
)
_NODE = record(
    {
        "target": _ANY_TEXT, "inputs": many(_NODE_ARGUMENT), "outputs": many(_ARGUMENT), "metadata": _modules,
        "name": or_null(_identifier),
    },
    {"name": None},
)  # fmt: skip
_GRAPH = record(
    {
        "inputs": many(_PORT), "outputs": many(_PORT), "nodes": many(_NODE),
        "tensor_values": table(_identifier, _tensor_meta(_SYM_INT, _SYM_INT)),
        "sym_int_values": table(_identifier, _SYM_INT), "sym_bool_values": table(_identifier, _SYM_BOOL),
        "is_single_tensor_return": flag, "custom_obj_values": table(_identifier, _NO_FUNCTION),
        "sym_float_values": table(_identifier, _SYM_FLOAT),
    },
    {"is_single_tensor_return": False, "custom_obj_values": {}, "sym_float_values": {}},
)  # fmt: skip

_CONSTANT = union({"as_none": flag, "as_int": whole(), "as_float": number, "as_string": _SHORT_TEXT, "as_bool": flag})
_INPUT = union(
    {
        "user_input": record({"arg": _PORT}),
        "parameter": record({"arg": _TENSOR, "parameter_name": _NAMED_PARTS}),
        "buffer": record({"arg": _TENSOR, "buffer_name": _NAMED_PARTS, "persistent": flag}),
        "tensor_constant": record({"arg": _TENSOR, "tensor_constant_name": _NAMED_PARTS}),
        "custom_obj": _NO_FUNCTION, "token": _NO_FUNCTION,
        "constant_input": record({"name": _identifier, "value": _CONSTANT}),
    }
)  # fmt: skip
_TRAINING = not_taken("losses and gradients are not compiled; export the model after eval()")
_OUTPUT = union(
    {
        "user_output": record({"arg": _PORT}), "loss_output": _TRAINING,
        "buffer_mutation": record({"arg": _TENSOR, "buffer_name": _NAMED_PARTS}),
        "gradient_to_parameter": _TRAINING, "gradient_to_user_input": _TRAINING,
        "user_input_mutation": record({"arg": _TENSOR, "user_input_name": _identifier}),
        "token": _NO_FUNCTION,
        "parameter_mutation": record({"arg": _TENSOR, "parameter_name": _NAMED_PARTS}),
    }
)  # fmt: skip


def _module_calls(value: Any, where: str) -> list[dict[str, Any]]:
    """Read how the whole model is called. Calls of inner modules are ignored, because nothing here unflattens them."""
    calls = many(an_object)(value, where)
    roots = [call for call in calls if call.get("fqn") == ""]
    if len(roots) != 1:
        raise Damaged(f"{where}: {len(roots)} entries are of the whole model, not one")
    signature = an_object(roots[0].get("signature"), f"{where}.signature")
    specs = {
        "in_spec": read_arguments_spec(signature.get("in_spec"), f"{where}.in_spec").to_text(),
        "out_spec": read_tree_spec(signature.get("out_spec"), f"{where}.out_spec").to_text(),
    }
    names = or_null(many(_identifier))(signature.get("forward_arg_names"), f"{where}.forward_arg_names")
    return [{"fqn": "", "signature": {"inputs": [], "outputs": [], **specs, "forward_arg_names": names}}]


_RANGE = record({"min_val": or_null(whole()), "max_val": or_null(whole())}, {"min_val": None, "max_val": None})
read_program: Reader = record(
    {
        "graph_module": record(
            {
                "graph": _GRAPH, "signature": record({"input_specs": many(_INPUT), "output_specs": many(_OUTPUT)}),
                "module_call_graph": _module_calls, "metadata": always({}), "treespec_namedtuple_fields": always({}),
            },
            {"metadata": {}, "treespec_namedtuple_fields": {}},
        ),
        "opset_version": always({}),
        "range_constraints": table(text(SYMBOL, meaning="symbol"), _RANGE),
        "schema_version": record({"major": whole(0, 1000), "minor": whole(0, 1000)}),
        "verifiers": many(one_of(("ATEN", "TRAINING"))),
        "guards_code": always([]),
    },
    {"verifiers": [], "guards_code": []},
)  # fmt: skip
"""Reader of models/model.json."""

_EXTENT = union({"as_int": whole(0)})
read_payloads: Reader = record(
    {
        "config": table(
            _NAMED_PARTS,
            record(
                {
                    "path_name": text(r"[\w.-]+", meaning="name of a file"), "is_param": flag, "use_pickle": flag,
                    "tensor_meta": or_null(_tensor_meta(_EXTENT, _EXTENT)),
                },
                {"tensor_meta": None},
            ),
        )
    },
    {"config": {}},
)  # fmt: skip
"""Reader of the configs of weights and constants."""
