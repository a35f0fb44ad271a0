"""Load a .pt2 file as a static Relax module: screen it, load it with torch, import it, and fix its shapes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tvm

from relay_passes.dataflow import bindings, live, outputs, rebuild
from tvm_ext.core.files.read_file import mapped_file
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.pair_states import with_states
from tvm_ext.frontends.pytorch.import_program import ImportedProgram, MutatedBuffer, import_program, open_program
from tvm_ext.frontends.relax_module import load_relax


def load_torch(path: Path, shapes: Mapping[str, Sequence[int]] | None, limits: Limits) -> Loaded:
    """Read and import a file of torch.export.save. Raises BadModel, BadOptions, UnsupportedModel."""
    data = mapped_file(path, kind="a .pt2 file")
    program = import_program(path, open_program(path, data, limits))
    loaded = _with_buffers(_with_torch_names(load_relax(program.mod, shapes, limits), program), program.buffers)
    return replace(loaded, mod=_without_dead(loaded.mod), sha256=hashlib.sha256(data).hexdigest())


def _with_torch_names(loaded: Loaded, program: ImportedProgram) -> Loaded:
    """Return the model with torch's names of its results. Equal names fall back to those of the graph's variables.

    No variable carries the name of a constant, of an alias of an input, or a second name of a result.
    """
    if len(loaded.output_names) != len(program.output_names):
        return loaded
    counts = Counter(program.output_names)
    named = zip(loaded.output_names, program.output_names, strict=True)
    return replace(loaded, output_names=tuple(given if counts[given] == 1 else own for own, given in named))


def _with_buffers(loaded: Loaded, buffers: Sequence[MutatedBuffer]) -> Loaded:
    """Return the model with its changed buffers as states, under their names in torch's module."""
    if not buffers:
        return loaded
    pairs = {buffer.placeholder: loaded.output_names[buffer.result] for buffer in buffers}
    paired = with_states(loaded, pairs, {buffer.placeholder: buffer.initial for buffer in buffers})
    states = tuple(
        replace(state, name=buffer.name, output="") for state, buffer in zip(paired.states, buffers, strict=True)
    )
    return replace(paired, states=states)


def _without_dead(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module without values that no output needs, such as the indices of a max pool."""
    main = mod["main"]
    kept = mod.clone()
    kept.update_func(kept.get_global_var("main"), rebuild(main, live(bindings(main), outputs(main))))
    return kept
