"""States of a model whose images are kept with their channels last: no caller sees them, so no layout is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, operands, static_shape
from relay_passes.layout.channels_last import NCHW_TO_NHWC, has_window, is_image
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.model_states import ModelState


def states_as_images(mod: tvm.IRModule) -> dict[relax.Var, relax.Var]:
    """Parameters of `main` that are states on their way to a window over NCHW images -> the same, channels last."""
    main, count = mod["main"], len(KeptStates.read(mod).states)
    found: dict[relax.Var, relax.Var] = {}
    for param in main.params[len(main.params) - count :]:
        if is_image(param) and _reaches_window(mod, param):
            shape = static_shape(param)
            found[param] = relax.Var(
                param.name, relax.TensorType([shape[axis] for axis in NCHW_TO_NHWC], str(param.ty.dtype))
            )
    return found


def with_turned_states(mod: tvm.IRModule, params: list[relax.Var], turned: dict[relax.Var, relax.Var]) -> tvm.IRModule:
    """The module whose attribute says how turned states begin. params: of `main` before."""
    if not turned:
        return mod
    states = KeptStates.read(mod).states
    changed = [
        _turned(state) if param in turned else state
        for state, param in zip(states, params[len(params) - len(states) :], strict=True)
    ]
    return KeptStates(states=tuple(changed)).write(mod)


def _turned(state: ModelState) -> ModelState:
    moved = [axis for axis in NCHW_TO_NHWC if state.initial.shape[axis] > 1]
    return replace(
        state,
        initial=np.ascontiguousarray(state.initial.transpose(NCHW_TO_NHWC)),
        layout=() if moved == sorted(moved) else NCHW_TO_NHWC,
    )


def _reaches_window(mod: tvm.IRModule, param: relax.Var) -> bool:
    """True where a composite that slides a window reads a parameter, or an image made from it."""
    reached = {param}
    for binding in bindings(mod["main"]):
        if reached.isdisjoint(operands(binding.value)):
            continue
        composite = composite_of(mod, binding.value)
        if composite is not None and has_window(composite):
            return True
        if is_image(binding.var):
            reached.add(binding.var)
    return False
