"""Steps under other names of their tensors."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.program.steps import KernelCall, Step, Transfer


def with_name(step: Step, old: str, new: str) -> Step:
    """The step with one tensor under another name."""

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    if isinstance(step, KernelCall):
        return replace(step, inputs=renamed(step.inputs), outputs=renamed(step.outputs))
    assert isinstance(step, Transfer), "loops and waits come after lowering"
    source, target = renamed((step.source, step.target))
    return replace(step, source=source, target=target)
