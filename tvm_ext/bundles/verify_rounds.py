"""Check the rounds of a bundle on the host, and count their instructions on the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.links import ModelLink
from codegen_c.emit.rounds import serve_symbol
from codegen_c.program.interface import Interface
from codegen_c.program.makespan import SharedRun
from codegen_c.program.parallel import Entry, ParallelProgram, RunStep
from tvm_ext.core.errors import NotReady, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import count_plugin, last_run
from tvm_ext.execution.bundle_runner import HostBundle, run_bundle_on_board
from tvm_ext.execution.host_model import HostModel
from tvm_ext.execution.samples import Sample

_ROUNDS = 6
"""Rounds that are compared, after those that fill windows over time."""


def faults_of_rounds(folder: Path, common: Bundle, samples: Mapping[str, Sequence[Sample]]) -> list[str]:
    """Return a sentence for each model whose outputs in rounds differ from those of its runs one after the other.

    The runs one after the other are those of a session, whose links are computed here in numpy. Bits are compared.
    """
    one = common.round
    assert one is not None, "the bundle has a round"
    servers = [serve_symbol(common.name, core) for core in one.processors[1:]]
    most = max(common.member(name).interface.warm_up_runs for name in one.models)
    faults: dict[str, None] = {}
    with _host(folder, common) as alone, _host(folder, common) as together:
        linked = {
            f"{link.target.model}.{link.tensor.name}": np.zeros(link.tensor.num_elements, link.mapping.target.dtype)
            for link in common.links
            if link.source.model in one.models and not link.tensor.is_state
        }
        for name in one.models:
            alone.models[name].reset()
            together.models[name].reset()
        for number in range(most + _ROUNDS):
            given = {name: _without(linked, name, samples[name][number % len(samples[name])]) for name in one.models}
            wanted = _one_after_the_other(alone, common, one.models, given, linked)
            found = together.run_round(f"{common.name}_run", servers, given, one.models)
            for name in one.models:
                is_ready = together.status(f"{common.name}_status_of_{name}") == 0
                if is_ready != (wanted[name] is not None) or not _same(wanted[name], found[name]):
                    faults[f"{name}: its outputs in a round differ from those of its runs one after the other"] = None
    return list(faults)


def _host(folder: Path, common: Bundle) -> HostBundle:
    return HostBundle(folder, common.name, [member.interface for member in common.members])


def _without(linked: Mapping[str, np.ndarray], model: str, sample: Sample) -> dict[str, np.ndarray]:
    """Return a sample without linked inputs."""
    return {name: value for name, value in sample.items() if f"{model}.{name}" not in linked}


def _one_after_the_other(
    host: HostBundle,
    common: Bundle,
    models: Sequence[str],
    given: Mapping[str, Sample],
    linked: dict[str, np.ndarray],
) -> dict[str, dict[str, np.ndarray] | None]:
    """Run the models of a round in order; return their outputs, or None for a model whose window is not full yet.

    linked: the values of linked inputs, which links change.
    """
    found: dict[str, dict[str, np.ndarray] | None] = {}
    for name in models:
        model = host.models[name]
        own = {
            port.source: linked[f"{name}.{port.source}"].reshape(port.shape)
            for port in model.interface.inputs
            if f"{name}.{port.source}" in linked
        }
        try:
            found[name] = model.run_sample({**given[name], **own})
        except NotReady:
            found[name] = None
            continue
        outputs = found[name] or {}
        for link in (link for link in common.links if link.source.model == name):
            value = link.reference(outputs[link.port.source])
            if link.tensor.is_state:
                _write_state(host.models[link.target.model], link, value)
            else:
                linked[f"{link.target.model}.{link.tensor.name}"] = value
    return found


def _write_state(model: HostModel, link: ModelLink, value: np.ndarray) -> None:
    state = bytearray(model.state())
    state[link.tensor.offset : link.tensor.offset + value.nbytes] = value.tobytes()
    model.restore(bytes(state))


def _same(wanted: Mapping[str, np.ndarray] | None, found: Mapping[str, np.ndarray]) -> bool:
    return wanted is None or all(value.tobytes() == found[name].tobytes() for name, value in wanted.items())


def lists_of_round(common: Bundle, parallels: Mapping[str, ParallelProgram | None]) -> dict[str, list[Entry]]:
    """Return the entries of each processor in a round, with the signals inside models that several processors share.

    parallels: the per-core schedules of each model; None for a model on one processor.
    """
    one = common.round
    assert one is not None, "the bundle has a round"
    offset = one.num_signals
    first_signal: dict[str, int] = {}
    for name in one.models:
        if own := parallels[name]:
            first_signal[name], offset = offset, offset + own.num_signals
    lists: dict[str, list[Entry]] = {}
    for processor, entries in zip(one.processors, one.lists, strict=True):
        found: list[Entry] = []
        for entry in entries:
            step = one.steps[entry.index] if isinstance(entry, RunStep) else None
            own = parallels.get(step.name) if step else None
            if own is None or step is None:
                found.append(entry)
                continue
            schedule = next(steps for steps in own.lists if steps.processor == processor)
            for inner in schedule.entries:
                if not isinstance(inner, RunStep):
                    found.append(replace(inner, signal=first_signal[step.name] + inner.signal))
        lists[processor] = found
    return lists


def counted_round(
    elf: Path,
    common: Bundle,
    platform: Platform,
    interfaces: Mapping[str, Interface],
    samples: Mapping[str, Sequence[Sample]],
    lists: Mapping[str, Sequence[Entry]],
    time_limit_s: float,
) -> SharedRun | None:
    """Return the counted instructions of a round on the board; None if QEMU cannot count those of each processor.

    samples: of at least one model, which the firmware runs before the rounds that are counted.
    """
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        counting = count_plugin(elf, platform, f"{common.name}_run", Path(name))
        if counting is None:
            return None
        try:
            run_bundle_on_board(
                elf, platform, [*interfaces], interfaces, samples, time_limit_s=time_limit_s, several=True,
                extras=counting,
            )  # fmt: skip
        except RunFailed:
            return None
        return last_run(Path(name), platform, lists)
