"""report.json of a bundle: the memory and code that its models share, and the report of each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.sharing import Member
from tvm_ext.core.alignment import aligned
from tvm_ext.core.platform import LINKED_MEMORY, STATE_MEMORY, Platform
from tvm_ext.report.report import SCHEMA_VERSION, machine_of


def make_bundle_report(
    bundle: Bundle,
    generator: str,
    platform: Platform,
    models: Mapping[str, Mapping[str, Any]],
    *,
    at_once: Sequence[Sequence[str]],
    code_bytes: int,
    symbol_bytes: Mapping[str, int],
    processors: Mapping[str, Any],
    artifacts: Mapping[str, str | None],
    coverage: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the report of a bundle as JSON-ready values.

    models: report of each model. at_once: groups of models that may run at the same time.
    symbol_bytes: bytes of code of each shared function. processors: entries about processors and the round.
    `saved_bytes` in the report are the bytes that separate packages would need in addition. An instance that a caller
    holds is counted once for each model.
    """
    used = used_bytes(bundle, platform)
    functions = [
        {
            "name": one.symbol,
            "kernel": one.calls[0][1].implementation.kernel,
            "models": list(one.models),
            "num_bytes": symbol_bytes.get(one.symbol, 0),
            "saved_bytes": symbol_bytes.get(one.symbol, 0) * (len(one.models) - 1),
        }
        for one in bundle.functions
    ]
    constants = [
        {
            "name": one.symbol,
            "models": list(one.models),
            "num_bytes": one.constant.data.nbytes,
            "saved_bytes": one.saved_bytes,
        }
        for one in bundle.constants
    ]
    arenas = [
        {
            "memory": one.memory,
            "num_bytes": one.num_bytes,
            "alone_bytes": one.alone_bytes,
            "saved_bytes": one.alone_bytes - one.num_bytes,
            "arenas": [
                {"model": model, "num_bytes": one.arenas[model], "offset": offset}
                for model, offset in one.offsets.items()
            ],
        }
        for one in bundle.overlays
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "generator": generator,
        "bundle": {
            "name": bundle.name,
            "models": [member.model for member in bundle.members],
            "at_once": [list(group) for group in at_once],
        },
        "platform": platform.name,
        "machine": machine_of(platform),
        **processors,
        "memories": [
            {
                "name": m.name,
                "kind": m.kind,
                "capacity_bytes": m.capacity_bytes,
                "reserved_bytes": m.reserved_bytes,
                "used_bytes": used.get(m.name, 0),
            }
            for m in platform.memories
        ],
        "arenas": arenas,
        "states": [
            {"model": member.model, "num_bytes": states} for member in bundle.members if (states := state_bytes(member))
        ],
        "variants": [
            {
                "name": group.name,
                "models": [one.model for one in group.models],
                "switch": group.switch,
                "needs": [asdict(needs) for needs, _ in group.table],
                "needs_to_change": [asdict(needs) for _, needs in group.table],
                "state_bytes": bundle.state_overlays[group.name].num_bytes if group.has_states else 0,
            }
            for group in bundle.variants
        ],
        "linked_inputs": [
            {"model": member.model, "num_bytes": linked}
            for member in bundle.members
            if (linked := linked_bytes(member))
        ],
        "links": [
            {
                "source": f"{link.source.model}.{link.port.source}",
                "target": f"{link.target.model}.{link.tensor.name}",
                "target_is": "state" if link.tensor.is_state else "input",
                "mapping": link.mapping.kind,
                "elements": link.tensor.num_elements,
                "resize": link.resample.name if link.resample else None,
                "constant_bytes": link.constant_bytes,
            }
            for link in bundle.links
        ],
        "instances": [
            {"model": member.model, "num_bytes": member.interface.context_bytes}
            for member in bundle.members
            if member.interface.holds_context
        ],
        "weights_bytes": bundle.weights_bytes,
        "code_bytes": code_bytes,
        "shared_functions": functions,
        "shared_constants": constants,
        "artifacts": dict(artifacts),
        "selftest_coverage": coverage,
        "models": {name: dict(report) for name, report in models.items()},
    }


def state_bytes(member: Member) -> int:
    """Return the bytes of states that the bundle holds for a model in addition to its arena."""
    return 0 if member.interface.holds_context else aligned(member.plan.state_bytes)


def linked_bytes(member: Member) -> int:
    """Return the bytes of a model's inputs that other models write."""
    return sum(aligned(arena.num_bytes) for arena in member.plan.arenas if arena.memory == LINKED_MEMORY)


def used_bytes(bundle: Bundle, platform: Platform) -> dict[str, int]:
    """Return the used bytes of each memory: overlaid arenas, states, linked inputs, one instance of each, weights."""
    used = {one.memory: one.num_bytes for one in bundle.overlays}
    for member in bundle.members:
        if member.interface.holds_context:
            used[platform.activations] = used.get(platform.activations, 0) + member.interface.context_bytes
        for arena in member.plan.arenas:
            is_overlaid = arena.memory == STATE_MEMORY and bundle.group_of(member.model) is not None
            if arena.memory in (STATE_MEMORY, LINKED_MEMORY) and not (member.interface.holds_context or is_overlaid):
                used[arena.inside] = used.get(arena.inside, 0) + aligned(arena.num_bytes)
    for overlay in bundle.state_overlays.values():
        used[platform.states] = used.get(platform.states, 0) + overlay.num_bytes
    used[platform.weights] = used.get(platform.weights, 0) + bundle.weights_bytes
    return used
