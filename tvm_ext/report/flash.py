"""Flash by layer: bytes of a layer's weights, and of compiled code that no other layer runs.

Constants and functions that several layers share are listed once, with the layers that use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from codegen_c.program.program import Program
from tvm_ext.core.toolchain import ObjectCode, Place

COUNTS = (
    "weights: all constants of the model; code: instructions and tables of the package's own objects. Functions of the "
    "C library that they call, start-up code and the application are not counted."
)


@dataclass(frozen=True, kw_only=True)
class LayerFlash:
    """Bytes of weights and code that only one layer uses."""

    layer: str
    weights_bytes: int
    code_bytes: int


@dataclass(frozen=True, kw_only=True)
class SharedFlash:
    """Bytes that several layers use. name: name of a function, a table or a constant."""

    name: str
    num_bytes: int
    layers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FlashByLayer:
    """All bytes of a package, each counted once. other_*: bytes that no layer uses, such as the run function."""

    layers: tuple[LayerFlash, ...]
    shared_code: tuple[SharedFlash, ...]
    shared_weights: tuple[SharedFlash, ...]
    other_code_bytes: int
    other_weights_bytes: int

    @property
    def weights_bytes(self) -> int:
        own = sum(layer.weights_bytes for layer in self.layers)
        return own + sum(one.num_bytes for one in self.shared_weights) + self.other_weights_bytes

    @property
    def code_bytes(self) -> int:
        own = sum(layer.code_bytes for layer in self.layers)
        return own + sum(one.num_bytes for one in self.shared_code) + self.other_code_bytes

    def to_json(self) -> dict[str, Any]:
        totals = {"weights_bytes": self.weights_bytes, "code_bytes": self.code_bytes}
        return {"counts": COUNTS, **totals, "total_bytes": sum(totals.values()), **asdict(self)}


def flash_by_layer(
    program: Program, code: ObjectCode, functions: Mapping[str, Sequence[str]], is_weights: Callable[[str], bool]
) -> FlashByLayer:
    """Assign the bytes of a package to its layers.

    functions: for each function that computes layers, the names of the layers.
    is_weights: returns True for the name of an object file that contains constants and no code.
    """
    calls = list(program.kernel_calls())
    layers = {call.name: LayerFlash(layer=call.name, weights_bytes=0, code_bytes=0) for call in calls}
    order = {name: number for number, name in enumerate(layers)}
    readers: dict[str, dict[str, None]] = {}
    for call in calls:
        for constant in call.constants:
            readers.setdefault(constant, {})[call.name] = None
    shared_weights: list[SharedFlash] = []
    for constant, names in readers.items():
        num_bytes = program.constants[constant].data.nbytes
        if len(names) == 1:
            (name,) = names
            layers[name] = replace(layers[name], weights_bytes=layers[name].weights_bytes + num_bytes)
        else:
            shared_weights.append(SharedFlash(name=constant, num_bytes=num_bytes, layers=tuple(names)))
    users: dict[Place, set[str]] = {}
    for function, names in functions.items():
        for place in code.reached(function):
            users.setdefault(place, set()).update(name for name in names if name in layers)
    shared_code: list[SharedFlash] = []
    counted = {place: size for place, size in code.num_bytes.items() if not is_weights(place[0]) and size}
    for place in sorted(counted):
        names = sorted(users.get(place, ()), key=lambda name: order[name])
        if len(names) == 1:
            name = names[0]
            layers[name] = replace(layers[name], code_bytes=layers[name].code_bytes + counted[place])
        elif names:
            shared_code.append(SharedFlash(name=_plain(place[1]), num_bytes=counted[place], layers=tuple(names)))
    shared_code.sort(key=lambda one: (-one.num_bytes, one.name))
    own = sum(one.code_bytes for one in layers.values()) + sum(one.num_bytes for one in shared_code)
    read = sum(program.constants[constant].data.nbytes for constant in readers)
    return FlashByLayer(
        layers=tuple(layers.values()), shared_code=tuple(shared_code), shared_weights=tuple(shared_weights),
        other_code_bytes=sum(counted.values()) - own, other_weights_bytes=program.weights_bytes - read,
    )  # fmt: skip


def _plain(section: str) -> str:
    """Return the name of the function or table in a section of an object file."""
    for kind in (".text.", ".rodata.", ".data.rel.ro.local.", ".data."):
        if section.startswith(kind):
            return section.removeprefix(kind)
    return section
