"""Links between the models of a bundle, and variants of a model among which a bundle chooses at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm

from codegen_c.costs.predict import predicted_cycles, time_model
from codegen_c.emit.bundle import Bundle
from codegen_c.emit.links import LinkedTensor, ModelLink, run_symbol
from codegen_c.emit.lists import state_signature
from codegen_c.emit.rounds import serve_symbol
from codegen_c.emit.sharing import Member
from codegen_c.emit.variants import VariantGroup
from codegen_c.program.mapping import Element, mapping_of
from codegen_c.program.resample import Resample, resample_of
from codegen_c.program.variants import Margins, Needs
from relay_passes.dataflow import num_elements
from tvm_ext.bundles.placement import platform_for
from tvm_ext.core.alignment import aligned
from tvm_ext.core.bundle_file import BundledLink, BundledModel, BundledVariants, BundleFile, VariantLimits
from tvm_ext.core.decisions.models import KeptStates, LinkedInputs, PortNames
from tvm_ext.core.errors import BadBundle, NotReady
from tvm_ext.core.platform import Platform
from tvm_ext.execution.bundle_runner import HostBundle
from tvm_ext.execution.samples import Sample

_MAPPING_CYCLES = 6
"""Cycles for each element that a link maps: a load, a multiplication, an addition, a store and the loop."""
_INTERPOLATION_CYCLES = 32
"""The same between four elements: their loads and conversions, three interpolations, and indices."""


def with_linked_inputs(module: tvm.IRModule, file: BundleFile, model: BundledModel) -> tvm.IRModule:
    """Note in a loaded module which of its inputs other models write. Raises BadBundle for an unknown target."""
    inputs = PortNames.read(module).inputs
    states = [state.name for state in KeptStates.read(module).states]
    names: list[str] = []
    for index, link in enumerate(file.links):
        owner, tensor = link.ends[1]
        if owner != model.name:
            continue
        if tensor not in (*inputs, *states):
            raise BadBundle(
                f"links[{index}].target = {link.target!r}: {model.name} has no such input or state; it has "
                f"{', '.join((*inputs, *states))}."
            )
        names += [tensor] if tensor in inputs and tensor not in states else []
    return LinkedInputs(inputs=tuple(names)).write(module) if names else module


def copy_cycles(file: BundleFile, modules: Mapping[str, tvm.IRModule]) -> dict[str, int]:
    """Return the estimated cycles for the links of each model. modules: the loaded modules by model."""
    cycles: dict[str, int] = {}
    for link in file.links:
        (source, _), (model, tensor) = link.ends
        sizes = {state.name: state.initial.size for state in KeptStates.read(modules[model]).states}
        ports = zip(PortNames.read(modules[model]).inputs, modules[model]["main"].params, strict=False)
        sizes |= {name: num_elements(var) for name, var in ports if name not in sizes}
        each = _INTERPOLATION_CYCLES if link.resize == "linear" else _MAPPING_CYCLES
        cycles[source] = cycles.get(source, 0) + each * sizes[tensor]
    return cycles


def links_of(file: BundleFile, members: Sequence[Member], modules: Sequence[tvm.IRModule]) -> list[ModelLink]:
    """Return the links between compiled models. modules: loaded module of each model.

    Raises BadBundle for an unknown output, and for shapes or types that cannot be linked.
    """
    by_name = {member.model: member for member in members}
    shapes = {
        f"{member.model}.{state.name}": state.initial.shape
        for member, module in zip(members, modules, strict=True)
        for state in KeptStates.read(module).states
    }
    return [_link(file.name, number, link, by_name, shapes) for number, link in enumerate(file.links, 1)]


def _link(
    bundle: str,
    number: int,
    link: BundledLink,
    members: Mapping[str, Member],
    state_shapes: Mapping[str, tuple[int, ...]],
) -> ModelLink:
    where = f"links[{number - 1}]"
    (one, output), (other, tensor) = link.ends
    source, target = members[one], members[other]
    port = next((port for port in source.interface.outputs if port.source == output), None)
    if port is None:
        outputs = ", ".join(port.source for port in source.interface.outputs)
        raise BadBundle(f"{where}.source = {link.source!r}: {one} has no such output; it has {outputs}.")
    found, element, shape = _target(target, tensor, state_shapes.get(link.target, ()), where)
    resample = _resample(link, port.shape, shape, where)
    source_element = Element(dtype=port.dtype, quantization=port.quantization)
    between = resample is not None and resample.interpolates
    mapping = mapping_of(source_element, element, link.scale, link.shift, between=between)
    if isinstance(mapping, str):
        raise BadBundle(f"{where}: {link.source} cannot become {link.target}: {mapping}.")
    return ModelLink(
        number=number, bundle=bundle, source=source.interface, port=port, target=target.interface, tensor=found,
        mapping=mapping, resample=resample,
    )  # fmt: skip


def _resample(link: BundledLink, source: Sequence[int], target: Sequence[int], where: str) -> Resample | None:
    if tuple(source) == tuple(target):
        return None
    found = "the link has no resize" if link.resize is None else resample_of(source, target, link.resize)
    if isinstance(found, str):
        raise BadBundle(
            f"{where}: {link.source} has shape {list(source)} and {link.target} has shape {list(target)}, but {found}. "
            "Set resize to 'linear' or 'nearest' if one or two sizes differ; otherwise reshape in one of the models."
        )
    return found


def _target(
    member: Member, name: str, state_shape: tuple[int, ...], where: str
) -> tuple[LinkedTensor, Element, tuple[int, ...]]:
    """Return an input or state by the model's own name, with its type and shape.

    state_shape: shape of the state in the model's file.
    Raises BadBundle for a state that may be stored in another order than the model's.
    """
    port = next((port for port in member.interface.inputs if port.source == name), None)
    if port is not None:
        found = LinkedTensor(name=name, c_name=port.name, is_state=False, num_elements=port.num_elements)
        return found, Element(dtype=port.dtype, quantization=port.quantization), port.shape
    state = next(state for state in member.program.states if state.source == name)
    tensor, place = member.program.tensors[state.tensor], member.plan.placements[state.tensor]
    turns = len(state_shape) == 4 and state_shape[1] > 1 and state_shape[2] * state_shape[3] > 1
    if tensor.ring or tensor.layout or turns:
        form = "a ring of rows" if tensor.ring else "an image, which may be stored with its channels last"
        raise BadBundle(f"{where}.target: the state {name!r} of {member.model} is {form}. Link to an input instead.")
    found = LinkedTensor(
        name=name, c_name=tensor.name, is_state=True, num_elements=tensor.num_elements, offset=place.offset
    )
    return found, Element(dtype=tensor.dtype, quantization=tensor.quantization), state_shape


def faults_of_links(folder: Path, common: Bundle, samples: Mapping[str, Sequence[Sample]]) -> list[str]:
    """Return a sentence for each link whose target on the host differs from the mapped output of its source."""
    interfaces = [member.interface for member in common.members]
    runs = {link.source.model: run_symbol(common.name, link.source.model) for link in common.links}
    servers = {model: [serve_symbol(common.name, core) for core in common.member(model).other_cores] for model in runs}
    faults: list[str] = []
    with HostBundle(folder, common.name, interfaces, runs, servers) as host:
        for model in runs:
            for sample in samples[model]:
                try:
                    outputs = host.models[model].run(sample)
                except NotReady:
                    continue
                faults += [
                    f"link {link.number}, {link.description}: the target differs from the mapped output"
                    for link in common.links
                    if link.source.model == model and not _is_mapped(host, link, outputs)
                ]
    return list(dict.fromkeys(faults))


def _is_mapped(host: HostBundle, link: ModelLink, outputs: Mapping[str, np.ndarray]) -> bool:
    wanted = link.reference(outputs[link.port.source]).tobytes()
    if link.tensor.is_state:
        begin = link.tensor.offset
        return host.models[link.target.model].state()[begin : begin + len(wanted)] == wanted
    symbol = f"{link.target.model}_{link.tensor.c_name}"
    return host.bytes_at(symbol, len(wanted)) == wanted


def variants_of(file: BundleFile, members: Sequence[Member], platform: Platform) -> list[VariantGroup]:
    """Return the groups of variants with their tables of thresholds.

    Raises BadBundle if variants cannot keep the states of each other, and for a link to a state of a variant.
    """
    by_name = {member.model: member for member in members}
    groups: list[VariantGroup] = []
    for index, group in enumerate(file.variants):
        ordered = [by_name[name] for name in group.order]
        layouts = {state_signature(one.program, one.plan) if one.program.states else "none" for one in ordered}
        if group.switch == "keep" and len(layouts) > 1:
            sizes = ", ".join(f"{one.model}: {one.plan.state_bytes} B{_order_of(one)}" for one in ordered)
            raise BadBundle(
                f"variants[{index}].switch = 'keep': the states of {group.name} have different layouts ({sizes}), so "
                "that no variant can use the states of another. Choose switch = 'reset', or models with equal states."
            )
        for number, link in enumerate(file.links):
            model, tensor = link.ends[1]
            if model in group.order and tensor in [state.source for state in by_name[model].program.states]:
                raise BadBundle(
                    f"links[{number}].target = {link.target!r}: all variants of {group.name} share the memory of their "
                    "states. Link to an input instead."
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


def _cycles(member: Member, platform: Platform) -> int:
    """Return the predicted cycles of a variant on its processor, counted by the clock of the first processor."""
    if not member.processors:
        return round(predicted_cycles(member.program, time_model(platform, optimize=member.optimize)))
    seen = platform_for(platform, member.processors)
    ratio = platform.processor.clock_hz / seen.processor.clock_hz
    return round(predicted_cycles(member.program, time_model(seen, optimize=member.optimize)) * ratio)


def _row(group: BundledVariants, member: Member, platform: Platform) -> tuple[Needs, Needs]:
    """Thresholds of a variant, without and with hysteresis."""
    limits = group.limits.get(member.model, VariantLimits())
    needs = Needs(
        cycles=min(_cycles(member, platform), (1 << 32) - 1),
        free_bytes=sum(aligned(arena.num_bytes) for arena in member.plan.arenas),
        battery_percent=limits.battery_percent, temperature_c=limits.temperature_c,
    )  # fmt: skip
    margins = Margins(
        fraction=group.hysteresis, battery_percent=group.battery_margin_percent,
        temperature_c=group.temperature_margin_c,
    )  # fmt: skip
    return needs, margins.added_to(needs)


def passes_of(bundle: Bundle) -> list[list[str]]:
    """Return the groups of models that run alternately in verification.

    A group has at most one model of each group of variants, because variants share the memory of their states.
    """
    alone = [member.model for member in bundle.members if bundle.group_of(member.model) is None]
    most = max((len(group.models) for group in bundle.variants), default=1)
    passes = [[group.models[i].model for group in bundle.variants if i < len(group.models)] for i in range(most)]
    return [[*alone, *passes[0]], *passes[1:]]
