"""Variants of a bundle: the table of what each needs, from the build's own figures, and runs that they take in turn."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.costs.predict import predicted_cycles, time_model
from codegen_c.emit.bundle import Bundle
from codegen_c.emit.run_states import signature
from codegen_c.emit.sharing import Member
from codegen_c.emit.variants import VariantGroup
from codegen_c.program.variants import Margins, Needs
from tvm_ext.core.alignment import aligned
from tvm_ext.core.bundle_file import BundledVariants, BundleFile, VariantLimits
from tvm_ext.core.errors import BadBundle
from tvm_ext.core.platform import Platform


def variants_of(file: BundleFile, members: Sequence[Member], platform: Platform) -> list[VariantGroup]:
    """Groups of variants with their tables. Raises BadBundle for states that cannot be kept, or are linked to."""
    by_name = {member.model: member for member in members}
    groups: list[VariantGroup] = []
    for index, group in enumerate(file.variants):
        ordered = [by_name[name] for name in group.order]
        layouts = {signature(one.program, one.plan) if one.program.states else "none" for one in ordered}
        if group.switch == "keep" and len(layouts) > 1:
            sizes = ", ".join(f"{one.model}: {one.plan.state_bytes} B{_order_of(one)}" for one in ordered)
            raise BadBundle(
                f"variants[{index}].switch = 'keep': the states of {group.name} have different layouts ({sizes}), so "
                "none can go on with another's. Choose switch = 'reset', or models with equal states."
            )
        for number, link in enumerate(file.links):
            model, tensor = link.ends[1]
            if model in group.order and tensor in [state.source for state in by_name[model].program.states]:
                raise BadBundle(
                    f"links[{number}].target = {link.target!r}: variants of {group.name} have one place for their "
                    "states, whichever runs. Link to an input instead."
                )
        groups.append(
            VariantGroup(
                name=group.name, models=tuple(one.interface for one in ordered),
                table=tuple(_row(group, one, platform) for one in ordered), switch=group.switch,
            )
        )  # fmt: skip
    return groups


def _order_of(member: Member) -> str:
    turned = [state.source for state in member.program.states if state.layout]
    return f", {' and '.join(turned)} with channels last" if turned else ""


def _row(group: BundledVariants, member: Member, platform: Platform) -> tuple[Needs, Needs]:
    """Needs of a variant, and those with the margins."""
    limits = group.limits.get(member.model, VariantLimits())
    needs = Needs(
        cycles=min(round(predicted_cycles(member.program, time_model(platform))), (1 << 32) - 1),
        free_bytes=sum(aligned(arena.num_bytes) for arena in member.plan.arenas),
        battery_percent=limits.battery_percent, temperature_c=limits.temperature_c,
    )  # fmt: skip
    margins = Margins(
        fraction=group.hysteresis, battery_percent=group.battery_margin_percent,
        temperature_c=group.temperature_margin_c,
    )  # fmt: skip
    return needs, margins.added_to(needs)


def passes_of(bundle: Bundle) -> list[list[str]]:
    """Models that take their turns together when all are run: of variants one in each pass, for they share states."""
    alone = [member.model for member in bundle.members if bundle.group_of(member.model) is None]
    most = max((len(group.models) for group in bundle.variants), default=1)
    passes = [[group.models[i].model for group in bundle.variants if i < len(group.models)] for i in range(most)]
    return [[*alone, *passes[0]], *passes[1:]]
