"""Replace each `torch.cond` of a program's JSON by the operators of both branches and a choice of their results.

    y = cond(c, {a -> f(a)}, {a -> g(a)}, [x])    ->    t = f(x);  e = g(x);  y = where(c, t, e)

The program was read field by field before, and every check of its nodes, names and tensors follows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tvm_ext.frontends.pytorch.plain_json import Damaged, NotTaken
from tvm_ext.frontends.shapes import ModelNotice

Json = dict[str, Any]

_COND = "torch.ops.higher_order.cond"
_WHERE = "torch.ops.aten.where.self"
_LONGEST_PLACE = 60
_NUMBERS = ("sym_int_values", "sym_bool_values", "sym_float_values")
_INDEXING = tuple(
    f"torch.ops.aten.{name}."
    for name in "embedding gather index index_add index_copy index_fill index_put index_put_ index_select scatter "
    "scatter_add scatter_reduce take take_along_dim".split()
)
"""Operators whose indices may be out of range where a run does not take their branch."""


def with_inlined_branches(program: Json) -> Json:
    """Return the program without graphs within graphs. Raises Damaged, NotTaken."""
    module = program["graph_module"]
    graph = module["graph"]
    tensors = dict(graph["tensor_values"])
    nodes = list(_inlined(graph["nodes"], tensors, "$.graph_module.graph.nodes"))
    return program | {"graph_module": module | {"graph": graph | {"nodes": nodes, "tensor_values": tensors}}}


def _inlined(nodes: list[Json], tensors: Json, where: str) -> Iterator[Json]:
    """Yield the nodes, with those of branches in place of each `torch.cond`, and add the branches' tensors."""
    for index, node in enumerate(nodes):
        at = f"{where}[{index}]"
        if node["target"] == _COND:
            yield from _both_branches(node, tensors, at)
        elif any("as_graph" in argument["arg"] for argument in node["inputs"]):
            raise NotTaken(f"{at}: graphs within graphs are only compiled for torch.cond")
        else:
            yield node


def _both_branches(node: Json, tensors: Json, where: str) -> Iterator[Json]:
    arguments = [argument["arg"] for argument in node["inputs"]]
    match arguments:
        case [
            {"as_tensor": condition}, {"as_graph": {"graph": yes}}, {"as_graph": {"graph": no}}, {"as_tensors": given}
        ]:  # fmt: skip
            pass
        case _:
            raise NotTaken(f"{where}: a torch.cond is only compiled with a tensor as its condition")
    outputs = [_tensor(output, where) for output in node["outputs"]]
    if not outputs:
        raise Damaged(f"{where}: it has no outputs")
    # A prefix of bounded length: names of deep branches would otherwise take far more bytes than the file.
    place = outputs[0] if len(outputs[0]) <= _LONGEST_PLACE else f"branch_{len(tensors)}"
    results: list[list[str]] = []
    for side, graph in (("then", yes), ("else", no)):
        names = _renamed(graph, given, f"{place}_{side}_", tensors, where)
        inner = [_with_names(one, names) for one in graph["nodes"]]
        for one in inner:
            if one["target"].startswith(_INDEXING):
                reason = "may be given indices out of range where its branch is not taken"
                raise NotTaken(f"{where}: {one['target']} in a branch {reason}")
        yield from _inlined(inner, tensors, f"{where}.{side}")
        results.append([names.get(name, name) for name in (_tensor(one, where) for one in graph["outputs"])])
    if not len(results[0]) == len(results[1]) == len(outputs):
        raise Damaged(f"{where}: its branches have {len(results[0])} and {len(results[1])} results")
    for output, one, other in zip(outputs, *results, strict=True):
        kinds = [_kind(tensors, name) for name in (one, other)]
        if kinds[0] != kinds[1]:
            raise NotTaken(f"{where}: control flow that depends on data, whose branches give other shapes or types")
        yield _choice(node, condition, output, one, other)
    said = "both branches are compiled, and a run skips steps of the branch that is not taken"
    warnings.warn(f"{outputs[0]}: {said}.", ModelNotice, stacklevel=2)


def _choice(node: Json, condition: Json, output: str, one: str, other: str) -> Json:
    operands = (("condition", condition), ("self", {"name": one}), ("other", {"name": other}))
    return node | {
        "target": _WHERE, "name": output, "outputs": [{"as_tensor": {"name": output}}],
        "inputs": [{"name": name, "arg": {"as_tensor": tensor}, "kind": 1} for name, tensor in operands],
    }  # fmt: skip


def _renamed(graph: Json, given: list[Json], prefix: str, tensors: Json, where: str) -> dict[str, str]:
    """Return the new name of each tensor of a branch, and add the branch's tensors under these names."""
    if any(graph[kind] for kind in _NUMBERS):
        raise NotTaken(f"{where}: sizes that a branch computes are not compiled")
    inputs = [_tensor(one, where) for one in graph["inputs"]]
    if len(inputs) != len(given):
        raise Damaged(f"{where}: it passes {len(given)} tensors to a branch of {len(inputs)} inputs")
    names = dict(zip(inputs, (one["name"] for one in given), strict=True))
    for name, meta in graph["tensor_values"].items():
        if name in names:
            continue
        names[name] = f"{prefix}{name}"
        if names[name] in tensors:
            raise Damaged(f"{where}: the name {names[name][:80]!r} is there twice")
        tensors[names[name]] = meta
    return names


def _with_names(node: Json, names: Mapping[str, str]) -> Json:
    name = node["outputs"][0].get("as_tensor", {}).get("name") if node["outputs"] else None
    return node | {
        "inputs": [argument | {"arg": _value(argument["arg"], names)} for argument in node["inputs"]],
        "outputs": [_value(output, names) for output in node["outputs"]],
        "name": names.get(name, node["name"]) if name else node["name"],
    }


def _value(value: Any, names: Mapping[str, str]) -> Any:
    """Return an argument with the new names of its tensors. Graphs have names of their own."""
    if isinstance(value, list):
        return [_value(item, names) for item in value]
    if not isinstance(value, dict) or "as_graph" in value:
        return value
    if value.keys() == {"name"}:
        return {"name": names.get(value["name"], value["name"])}
    return {key: _value(item, names) for key, item in value.items()}


def _tensor(value: Json, where: str) -> str:
    if "as_tensor" not in value:
        raise NotTaken(f"{where}: only tensors are passed to and from branches")
    return value["as_tensor"]["name"]


def _kind(tensors: Json, name: str) -> tuple[Any, Any]:
    meta = tensors.get(name) or {}
    return meta.get("sizes"), meta.get("dtype")
