"""Specifications of nested inputs and outputs (torch.utils._pytree), read from JSON and printed again.

torch looks up the class that a specification names, and parses the context of a container with a hook that imports any
module and takes any attribute of it. Only builtin containers are taken here, whose contexts are null or lists of
strings; nothing of the original text is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tvm_ext.frontends.pytorch.plain_json import Damaged, NotTaken, an_object, parse_json, shown, text

_PROTOCOL = 1
_MOST_DEPTH, _MOST_NODES = 32, 10_000
_SEQUENCES = ("builtins.tuple", "builtins.list")
_MAPPINGS = ("builtins.dict", "collections.OrderedDict")
_KEY = text(r"[\w .:/-]*", meaning="key of letters, digits, spaces and .:/-", most=200)


@dataclass(frozen=True, kw_only=True)
class TreeSpec:
    """A container, or a leaf where kind is None. keys: of a mapping, one for each child."""

    kind: str | None
    keys: tuple[str, ...] = ()
    children: tuple[TreeSpec, ...] = ()

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(child.num_leaves for child in self.children)

    def to_text(self) -> str:
        """The specification as torch reads it."""
        return json.dumps([_PROTOCOL, self._plain()])

    def _plain(self) -> dict[str, Any]:
        if self.kind is None:
            return {"type": None, "context": None, "children_spec": []}
        context = json.dumps(list(self.keys) if self.kind in _MAPPINGS else None)
        return {"type": self.kind, "context": context, "children_spec": [child._plain() for child in self.children]}


def read_tree_spec(value: Any, where: str) -> TreeSpec:
    """Read what torch.utils._pytree.treespec_dumps wrote. Raises Damaged, NotTaken."""
    if not isinstance(value, str):
        raise Damaged(f"{where}: {shown(value)} is no specification of containers")
    if value.count("{") > _MOST_NODES:
        raise Damaged(f"{where}: it describes more than {_MOST_NODES} containers and leaves")
    parsed = _parsed(value, where)
    if not isinstance(parsed, list) or len(parsed) != 2 or parsed[0] != _PROTOCOL:
        raise Damaged(f"{where}: {shown(value)} is no specification of containers")
    return _read(parsed[1], where, 0)


def read_arguments_spec(value: Any, where: str) -> TreeSpec:
    """Read the specification of a call: a tuple of arguments, and a dict of those that have names."""
    spec = read_tree_spec(value, where)
    kinds = [child.kind for child in spec.children]
    if spec.kind != "builtins.tuple" or kinds != ["builtins.tuple", "builtins.dict"]:
        raise Damaged(f"{where}: it is no tuple of arguments and a dict of those with names")
    for key in spec.children[1].keys:  # torch makes parameters of a Python function of them
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
    """Keys of a mapping out of its context; a sequence has the context null."""
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
