"""Buffers that an exported program changes as it runs: its states, opened into inputs and outputs of its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class MutatedBuffer:
    """A buffer that a run leaves changed.

    name: of the buffer in its module. placeholder: of the graph, which is an input now. result: place of its next value
    among the graph's results.
    """

    name: str
    placeholder: str
    result: int
    initial: np.ndarray


def with_buffers_opened(program: Any) -> tuple[Any, tuple[MutatedBuffer, ...]]:
    """A decomposed torch.export.ExportedProgram whose changed buffers are inputs and outputs, and these buffers."""
    from torch.export.graph_signature import (  # pyright: ignore[reportMissingImports]
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
    )

    signature = program.graph_signature
    places = {
        spec.target: place
        for place, spec in enumerate(signature.output_specs)
        if spec.kind == OutputKind.BUFFER_MUTATION
    }
    if not places:
        return program, ()
    values = {**dict(program.named_buffers()), **program.constants}
    buffers = tuple(
        MutatedBuffer(
            name=spec.target, placeholder=spec.arg.name, result=places[spec.target],
            initial=values[spec.target].detach().cpu().numpy().copy(),
        )
        for spec in signature.input_specs
        if spec.target in places
    )  # fmt: skip
    inputs = [
        InputSpec(kind=InputKind.USER_INPUT, arg=spec.arg, target=None) if spec.target in places else spec
        for spec in signature.input_specs
    ]
    outputs = [
        OutputSpec(kind=OutputKind.USER_OUTPUT, arg=spec.arg, target=None)
        if spec.kind == OutputKind.BUFFER_MUTATION
        else spec
        for spec in signature.output_specs
    ]
    program._graph_signature = ExportGraphSignature(input_specs=inputs, output_specs=outputs)
    return program, buffers
