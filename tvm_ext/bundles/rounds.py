"""Rounds of a bundle: their lists, what may run at once, the links of models on several processors, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.layer_files import compiled_as
from codegen_c.emit.links import ModelLink
from codegen_c.emit.rounds import starts_apart
from codegen_c.emit.sharing import Member
from codegen_c.program.makespan import SharedRun
from codegen_c.program.rounds import Round, round_of
from tvm_ext.bundles.placement import BundlePlacement, round_links
from tvm_ext.core.bundle_file import BundleFile
from tvm_ext.core.errors import BadBundle
from tvm_ext.core.platform import Platform


def placed_round(
    file: BundleFile, members: Sequence[Member], placement: BundlePlacement, platform: Platform
) -> Round | None:
    """Return the round of a bundle with the lists of its processors; None for a bundle without a round."""
    if not file.round:
        return None
    first = platform.processor.name
    runs_on = {member.model: member.processors or (first,) for member in members}
    names = [core.name for core in platform.processors]
    return round_of(names, file.round, round_links(file), runs_on, placement.sequence)


def groups_at_once(file: BundleFile, members: Sequence[Member], one: Round | None) -> list[frozenset[str]]:
    """Return the groups of models that may run, or hold inputs and outputs of the application, at the same time.

    The models of a round are one group, because the application writes all inputs before a round and reads all outputs
    after it. A model that another processor runs beside the first is in a group with each model that this processor
    does not run. Variants of one task never run at the same time.
    """
    variants = [frozenset(group.order) for group in file.variants]
    groups = [frozenset(group) for group in file.at_once]
    groups += [frozenset(one.models)] if one and len(one.models) > 1 else []
    for member in members:
        if starts_apart(member, one):
            beside = [other for other in members if member.processors[0] not in other.processors]
            pairs = [frozenset({member.model, other.model}) for other in beside]
            groups += [pair for pair in pairs if not any(pair <= group for group in variants)]
    return list(dict.fromkeys(groups))


def placed_links(
    links: Sequence[ModelLink], members: Sequence[Member], file: BundleFile, platform: Platform
) -> list[ModelLink]:
    """Return the links with the processors that copy them.

    In a round the processor that calls the source copies. Outside of the round the first processor copies, after it has
    seen that the source has ended and that the target does not run. Raises BadBundle for a link outside of the round
    between two models on different processors beside the first.
    """
    by_name = {member.model: member for member in members}
    if not file.round and not any(member.processors for member in members):
        return list(links)
    placed: list[ModelLink] = []
    for link in links:
        source, target = by_name[link.source.model], by_name[link.target.model]
        link = replace(link, is_static=False, runs_elsewhere=bool(source.processors))
        if source.model in file.round:
            caller = source.processors[0] if source.processors else ""
            placed.append(replace(link, compiled_as=compiled_as(platform, caller)))
            continue
        apart = [member.processors[0] for member in (source, target) if len(member.processors) == 1]
        if len(dict.fromkeys(apart)) > 1:
            raise BadBundle(
                f"links[{link.number - 1}]: {source.model} runs on {apart[0]} and {target.model} on {apart[1]}, beside "
                "the first processor, so a value could change while it is read. Put both into the round, or give both "
                "the same processors."
            )
        waits = target.processors[0] if len(target.processors) == 1 and len(apart) == 1 else ""
        placed.append(replace(link, waits_for=waits))
    return placed


def processors_report(
    common: Bundle, placement: BundlePlacement, platform: Platform, measured: SharedRun | None
) -> dict[str, Any]:
    """Return the entries of report.json about processors and the round."""
    first = platform.processor.name
    one = common.round

    def cycles(nanoseconds: int | None) -> int | None:
        return None if nanoseconds is None else round(nanoseconds * platform.processor.clock_hz / 1_000_000_000)

    placed = [
        {
            "model": member.model,
            "processors": list(member.processors or (first,)),
            "predicted_cycles": [
                {"processors": list(names), "cycles": cycles(time)}
                for names, time in placement.nanoseconds.get(member.model, {}).items()
            ],
        }
        for member in common.members
    ]
    found: dict[str, Any] = {"placement": placed, "round": None}
    if one is None:
        return found
    found["round"] = {
        "models": list(one.models),
        "signals": one.num_signals,
        "makespan_cycles": cycles(placement.makespan),
        "bound_cycles": cycles(placement.bound),
        "single_processor_cycles": cycles(placement.alone),
        "makespan_instructions": measured.makespan if measured else None,
        "instructions": (dict(zip(one.processors, measured.instructions, strict=True)) if measured else None),
    }
    return found
