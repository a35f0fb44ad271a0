"""Names in the C of inputs and outputs that users rename."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from codegen_c.lowering.lower_region import GivenNames
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.names import identifier


def port_names(
    inputs: Sequence[str],
    outputs: Sequence[str],
    rename: Mapping[str, str] | None,
    reserved: Collection[str],
    computed: Collection[str] = (),
) -> GivenNames:
    """Names for the inputs and outputs of a region, empty where the model's own name is taken.

    inputs, outputs: the model's own names. rename: one of these -> its name in the C; an input comes before an output
    of the same name. reserved: names that nothing of the model may have. computed: outputs whose names are those of
    tensors inside, of which they are made.
    Raises BadOptions for a name that no input or output has, and for one that another has already.
    """
    chosen = rename or {}
    for old, new in chosen.items():
        if old not in (*inputs, *outputs):
            raise BadOptions(
                f"rename {old}={new}: the model has no input or output {old!r}; its inputs are {_listed(inputs)}, its "
                f"outputs {_listed(outputs)}."
            )
        others = [name for name in (*inputs, *outputs) if name not in chosen and identifier(name, fallback="t") == new]
        if others or new in reserved:
            what = f"{others[0]!r} is called so" if others else "the package has other things of that name"
            raise BadOptions(f"rename {old}={new}: {what}; choose another name.")
    made = {name: identifier(name, fallback="t") for name in computed}
    chosen = {**{name: new for name, new in made.items() if new not in reserved}, **chosen}
    given = [chosen.get(name, "") for name in inputs]
    return GivenNames(
        inputs=tuple(given), outputs=tuple("" if name in inputs else chosen.get(name, "") for name in outputs)
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
