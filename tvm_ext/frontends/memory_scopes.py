"""Memories that a Relax module asks for: memory scopes of TVM's VDevices on inputs, outputs and constants of `main`.

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "dtcm")]})
    def main(x: R.Tensor((1, 8), "float32", "vdevice:0")): ...      x lies in the platform's memory `dtcm`

A scope is the name of a memory of the platform, also as `global.dtcm`; `global` alone names no memory. TVM passes the
scope of an input on to results of some operators, so only three places count: an input's type, a `to_vdevice` or
`hint_on_device` that an output comes from, and one of a constant. Other copies between VDevices are dropped, because
the memory planner chooses the memories of values between operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, build, infer, op_name, outputs, substitute
from tvm_ext.core.decisions.models import MemoryScopes, PortNames
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

_COPIES = ("relax.to_vdevice", "relax.hint_on_device")
_NO_MEMORY = "global"


def without_scopes(main: relax.Function, output_names: Sequence[str]) -> tuple[relax.Function, MemoryScopes]:
    """Return `main` without VDevices, and the scopes that they named; `main` itself if no VDevice has a scope.

    output_names: the names of its results. Raises UnsupportedModel for a scope in another place.
    """
    inputs = {param.name: scope for param in main.params if (scope := _scope(param.ty))}
    copies = {binding.var: scope for binding in bindings(main) if (scope := _scope_of_copy(binding.value))}
    if not inputs and not copies:
        return main, MemoryScopes()
    params = [relax.Var(param.name, _plain(param.ty), param.span) for param in main.params]
    known: dict[relax.Var, relax.Expr] = dict(zip(main.params, params, strict=True))
    constants: list[str] = []
    sequence: list[relax.VarBinding] = []
    for binding in bindings(main):
        value = _without_types(substitute(binding.value, known))
        if op_name(value) in _COPIES:
            known[binding.var] = value.args[0]
            if isinstance(value.args[0], tvm.ir.GenericConst) and binding.var in copies:
                constants.append(copies[binding.var])
            continue
        var = binding.var
        if _has_device(var.ty):
            var = known[binding.var] = type(var)(var.name, value.ty, var.span)
        sequence.append(relax.VarBinding(var, value))
        _refuse_devices(var)
    results = outputs(main)
    named = {name: copies[result] for name, result in zip(output_names, results, strict=False) if result in copies}
    plain = build(
        params, sequence, [substitute(result, known) for result in results], attrs=main.attrs,
        as_tuple=isinstance(main.body.body, relax.Tuple),
    )  # fmt: skip
    others = sorted({*copies.values()} - {*constants, *named.values()})
    return plain, MemoryScopes(ports={**inputs, **named}, constants=tuple(constants), others=tuple(others))


def in_scopes(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> tuple[tvm.IRModule, BuildOptions]:
    """Return a loaded module without its scopes, and options with a `place_port` for each that they do not place.

    Raises BadOptions for a scope that is no memory of the platform, or that cannot hold what is placed there.
    """
    scopes = MemoryScopes.read(mod)
    ports = dict(scopes.ports or {})
    if not (ports or scopes.constants or scopes.others):
        return mod, options
    known = {memory.name: memory.kind for memory in platform.memories}
    tensors = [name for name, kind in known.items() if kind == "ram"]
    for name, scope in ports.items():
        if scope not in tensors:
            raise BadOptions(
                f"{name}: its VDevice has the memory scope {scope!r}, but {platform.name} has no memory of this name "
                f"for tensors; it has {', '.join(tensors)}. Change the scope, or describe the memory in the platform "
                "(platform_with_pools of tvm_ext.relax.memory_pools)."
            )
    for scope in scopes.constants:
        if scope != platform.weights:
            raise BadOptions(
                f"a constant's VDevice has the memory scope {scope!r}, but the constants for {platform.name} lie in "
                f"{platform.weights}. Change the scope, or choose another memory for all constants: weights of a "
                "platform file, constants of platform_with_pools. Copies in faster memories need no scope."
            )
    unknown = next((scope for scope in scopes.others if scope not in known), None)
    if unknown is not None:
        raise BadOptions(
            f"to_vdevice: {platform.name} has no memory {unknown!r}; it has {', '.join(known)}. Change the scope."
        )
    return MemoryScopes().write(mod), _placed(ports, PortNames.read(mod), platform, options)


def _placed(ports: Mapping[str, str], names: PortNames, platform: Platform, options: BuildOptions) -> BuildOptions:
    """Return the options with the places of inputs and outputs. Raises BadOptions if the application holds them."""
    states = [name for name in ports if name not in (*names.inputs, *names.outputs)]
    for name in states:
        if ports[name] != platform.states:
            raise BadOptions(
                f"{name}: its VDevice has the memory scope {ports[name]!r}, but {name} is a state, and the states for "
                f"{platform.name} lie in {platform.states}. Remove the scope."
            )
    places = {name: scope for name, scope in ports.items() if name not in states}
    name = next(iter(places), "")
    if places and (options.io != "arena" or options.context == "caller"):
        said = f"io = {options.io!r}" if options.io != "arena" else "context = 'caller'"
        raise BadOptions(
            f"{name}: its VDevice has the memory scope {places[name]!r}, but with {said} the application chooses where "
            "inputs and outputs lie. Remove the scope, or the option."
        )
    return replace(options, place_port={**places, **(options.place_port or {})} or None)


def refuse_scopes(mod: tvm.IRModule) -> None:
    """Raise BadOptions for a loaded module with scopes inside `tvm.compile`."""
    scopes = MemoryScopes.read(mod)
    if scopes != MemoryScopes():
        named = [*(scopes.ports or {}).items(), *(("to_vdevice", one) for one in (*scopes.constants, *scopes.others))]
        name, scope = named[0]
        raise BadOptions(
            f"{name}: the memory scope {scope!r} of its VDevice names a memory of a board, but inside tvm.compile the "
            "caller holds inputs and outputs, in memory of this machine. Remove the scope, or build a package with "
            "tvm_ext.build."
        )


def _scope(kind: tvm.ir.Type) -> str:
    """Return the memory that a type's VDevice names; empty if it names none."""
    device = kind.vdevice if isinstance(kind, relax.TensorType) else None
    return "" if device is None else _memory(str(device.memory_scope))


def _memory(scope: str) -> str:
    return "" if scope == _NO_MEMORY else scope.removeprefix(f"{_NO_MEMORY}.")


def _scope_of_copy(value: relax.Expr) -> str:
    """Return the memory that a copy to a VDevice names; empty for other values."""
    name = op_name(value)
    if name not in _COPIES:
        return ""
    attrs = value.attrs
    return _memory(str(attrs.dst_vdevice.memory_scope if name == _COPIES[0] else attrs.memory_scope))


def _has_device(kind: tvm.ir.Type) -> bool:
    if isinstance(kind, relax.TupleType):
        return any(map(_has_device, kind.fields))
    return isinstance(kind, relax.TensorType) and kind.vdevice is not None


def _plain(kind: tvm.ir.Type) -> tvm.ir.Type:
    """Return the type without its VDevice."""
    if isinstance(kind, relax.TupleType):
        return relax.TupleType([_plain(field) for field in kind.fields])
    return relax.TensorType(kind.shape, kind.dtype) if isinstance(kind, relax.TensorType) else kind


def _without_types(value: relax.Expr) -> relax.Expr:
    """Return a call whose types, if it states them, have no VDevices; other values unchanged."""
    if not isinstance(value, relax.Call) or not any(map(_has_device, (value.ty, *value.ty_args))):
        return value
    return infer(relax.Call(value.op, value.args, value.attrs, [_plain(one) for one in value.ty_args], value.span))


def _refuse_devices(var: relax.Var) -> None:
    """Raise UnsupportedModel for a value that still has a VDevice, as from a constant with one."""
    if _has_device(var.ty):
        raise UnsupportedModel(
            f"{var.name!r} has the type {var.ty}, whose VDevice comes neither from an input nor from to_vdevice. Give "
            "constants without a VDevice."
        )
