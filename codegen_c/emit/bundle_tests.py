"""Self-test and firmware of a bundle: they call those of its models in turn, and check the states in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from codegen_c.c_text.text import C_TYPES, filled, float_literal, literal
from codegen_c.emit.bundle import Bundle
from codegen_c.emit.firmware import board_files, firmware_part, other_processors
from codegen_c.emit.links import run_symbol
from codegen_c.emit.rounds import serve_symbol
from codegen_c.emit.selftest import TestVector, ports
from codegen_c.emit.templates import render
from codegen_c.emit.variants import VariantGroup, select_cases
from codegen_c.program.interface import Interface
from tvm_ext.core.platform import Platform

_LINE_LENGTH = 100
_ROUNDS = 4
"""Rounds that the self-test compares, after those that fill windows over time."""


def emit_bundle_selftest(
    bundle: Bundle, vectors: Mapping[str, Sequence[TestVector]], *, tolerance: float, compares: bool
) -> dict[str, str]:
    """Return the texts of `<bundle>_selftest.h` and `.c`, and of a program for the host.

    vectors: test vectors of each model, with which links are tested, too. tolerance: of floats, as in `emit_selftest`.
    compares: True if the models' self-tests compare outputs.
    """
    interfaces = [member.interface for member in bundle.members]
    values = {
        "bundle": bundle.name,
        "compares": compares,
        "models": _models(interfaces),
        "servers": _servers(bundle),
        "round": _round(bundle),
        "linked": [_linked(bundle, one, vectors[one.model], tolerance) for one in interfaces] if compares else [],
        "variants": [_variants(group) for group in bundle.variants],
        "kept": [
            one.model
            for one in interfaces
            if one.state_bytes and not one.holds_context and bundle.group_of(one.model) is None
        ],
    }
    names = ("selftest.h", "selftest.c", "selftest_main.c")
    return {f"{bundle.name}_{name}": render(f"bundle_{name}.j2", **values) for name in names}


def emit_bundle_firmware(bundle: Bundle, platform: Platform, *, compares: bool) -> dict[str, str]:
    """Return the files under `board/`. Raises BadPlatform under the same conditions as `emit_firmware`."""
    moves = any(member.program.moves() for member in bundle.members)
    values = {
        "bundle": bundle.name,
        "compares": compares,
        "models": _models([m.interface for m in bundle.members]),
        "round": list(bundle.round.models) if bundle.round else [],
        "several": bool(bundle.other_cores),
    }
    parts = {
        f"firmware_{member.model}.c": firmware_part(
            member.interface,
            platform,
            moves=bool(member.program.moves()),
            in_bundle=True,
            in_round=bundle.round is not None and member.model in bundle.round.models,
            run=run_of(bundle, member.model),
        )
        for member in bundle.members
    }
    own = {"firmware.c": render("bundle_firmware.c.j2", **values), "models.h": render("bundle_models.h.j2", **values)}
    functions = {core: serve_symbol(bundle.name, core) for core in bundle.other_cores}
    own |= other_processors(bundle.name, functions, platform) if functions else {}
    return board_files(platform, parts | own, moves=moves, others=bundle.other_cores)


def run_of(bundle: Bundle, model: str) -> tuple[str, str]:
    """Return the function with which the first processor runs a model, and its header; empty for the model's own."""
    if not bundle.member(model).processors:
        return "", ""
    return run_symbol(bundle.name, model), f"{bundle.name}_round.h"


def _servers(bundle: Bundle) -> list[dict[str, str]]:
    """Return the template's fields of the processors beside the first."""
    return [{"name": core, "function": serve_symbol(bundle.name, core)} for core in bundle.other_cores]


def _round(bundle: Bundle) -> dict[str, object] | None:
    """Return the template's fields of the round, which has to give what its models give one after the other."""
    if bundle.round is None:
        return None
    linked = {(link.target.model, link.tensor.name) for link in bundle.links}
    models: list[dict[str, object]] = []
    for name in bundle.round.models:
        member = bundle.member(name)
        interface = member.interface
        hands_on = any(link.source.model == name for link in bundle.links)
        inputs = zip(ports(interface, "inputs", ""), interface.inputs, strict=True)
        models.append(
            {
                "name": name,
                "run": run_symbol(bundle.name, name) if hands_on or member.processors else interface.run,
                "resets": interface.state_bytes > 0,
                "inputs": [{**fields, "is_linked": (name, port.source) in linked} for fields, port in inputs],
                "outputs": ports(interface, "outputs", ""),
            }
        )
    most = max(bundle.member(name).interface.warm_up_runs for name in bundle.round.models)
    return {"models": models, "rounds": most + _ROUNDS}


def _linked(bundle: Bundle, source: Interface, vectors: Sequence[TestVector], tolerance: float) -> dict[str, object]:
    """Return the template's fields of a model, of its links, and of the values that they make of its first output."""
    vector = vectors[source.warm_up_runs] if source.warm_up_runs < len(vectors) else vectors[-1]
    links: list[dict[str, object]] = []
    for link in bundle.links:
        if link.source.model != source.model or vector.outputs is None:
            continue
        elements = link.reference(vector.outputs[link.port.source])
        is_float = elements.dtype.kind == "f" and elements.dtype.itemsize > 2
        largest = float(np.abs(elements[np.isfinite(elements)]).max(initial=0)) if is_float else 0.0
        links.append(
            {
                "symbol": link.symbol,
                "place": link.place,
                "count": link.tensor.num_elements,
                "target": link.target.model,
                "tensor": link.tensor.c_name,
                "c_type": C_TYPES[link.mapping.target.dtype],
                "is_float": is_float,
                "limit": float_literal(tolerance * largest),
                "lines": filled(literal(elements), _LINE_LENGTH),
            }
        )
    return {
        "name": source.model,
        "run": run_symbol(bundle.name, source.model),
        "resets": source.state_bytes > 0,
        "runs": source.warm_up_runs + 1,
        "inputs": ports(source, "inputs", ""),
        "links": links,
        "state_targets": list(dict.fromkeys(link.target.model for link in bundle.links if link.tensor.is_state)),
    }


def _variants(group: VariantGroup) -> dict[str, object]:
    """Return the template's fields of a group of variants."""
    stateful = [(index, one.model) for index, one in enumerate(group.models) if one.state_bytes]
    return {
        "name": group.name,
        "cases": select_cases(group),
        "count": len(group.models),
        "keeps": group.switch == "keep",
        "stateful": stateful,
    }


def _models(interfaces: Sequence[Interface]) -> list[dict[str, str | int]]:
    """Return the template's fields of the models."""
    return [
        {
            "name": one.model,
            "context": one.holds_context,
            "input_bytes": sum(port.num_bytes for port in one.inputs),
            "output_bytes": sum(port.num_bytes for port in one.outputs),
        }
        for one in interfaces
    ]
