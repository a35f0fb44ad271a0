"""Turn a model over a window of time into a model that takes only new frames and computes the same results.

Rewrite, with 1 new frame of the 30 frames of x in each run:
    main(x[1, 30, 1, 40]): y = conv(x, 3 taps); z = conv(y, 5 taps); return dense(z)
      ->  main(x[1, 1, 1, 40], x.kept[1, 2, 1, 40], y.kept[1, 4, 1, 128], z.kept[1, 23, 1, 128]):
          wx = concat(x.kept, x); y = conv(wx); wy = concat(y.kept, y); z = conv(wy); wz = concat(z.kept, z)
          return dense(wz), wx[1:], wy[1:], wz[1:]
    The rows of a value differ from run to run only in their position. So only the newest rows are computed, and rows
    that are read again are kept as states. Rows that padding in time touches are computed in each run, from kept rows.
    Where the number of new frames is no multiple of a stride, rows are computed for every position at which a window
    can begin, and the next operator reads them with a dilation equal to the number of positions. Operators that mix
    time with other axes are computed for the whole window, from kept rows.
    Recurrent layers run for the new rows only, and their states go on from run to run. Rows of such a model go on, too:
    padding ahead of row 0 is in the states after a reset, and no row is computed again because a window begins with it.
Leaves alone: values that are not over time. A model without values over time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, static_shape
from relay_passes.streams.hop_costs import cost_of_window, label, reached, remarks, total
from relay_passes.streams.hop_writer import write_hop
from relay_passes.streams.value_times import Times, times_of
from tvm_ext.core.decisions.models import HopCost, KeptStates, WarmUp
from tvm_ext.core.errors import BadOptions, UnsupportedModel


@tvm.transform.module_pass(opt_level=0, name="StreamWindows")
class StreamWindows:
    """Take `hop` new frames in each run, along one axis of an input, which keeps its name.

    The pass needs a function of one dataflow block. The result carries the states, and the number of runs until the
    first result is that of a full window.
    count: returns the multiply-accumulates of a TIR function.
    shorten: returns a loop over time with another number of steps, from the loop, its parameters that have an element
    for each step, and the number.
    """

    def __init__(
        self,
        name: str,
        hop: int,
        axis: int | None = None,
        count: Callable[[tvm.tirx.PrimFunc], int] = lambda _: 0,
        shorten: Callable[[tvm.tirx.PrimFunc, Sequence[int], int], tvm.tirx.PrimFunc] | None = None,
    ) -> None:
        self.name, self.hop, self.axis, self.count, self.shorten = name, hop, axis, count, shorten

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main, kept = mod["main"], KeptStates.read(mod).states
        param = _input(main, self.name, len(kept))
        times = _times(mod, param, self.hop, self.axis)
        frames = static_shape(param)[times.over[param].axis]
        written = write_hop(
            main, times, self.hop, lambda loop, stacked, steps: self._shortened(mod[loop], stacked, steps)
        )
        changed = mod.clone()
        changed.update_func(changed.get_global_var("main"), written.func)
        for var, function in written.functions.items():
            changed.update_func(var, function)
        of_tir = {
            var.name_hint: self.count(f) for var, f in changed.functions.items() if isinstance(f, tvm.tirx.PrimFunc)
        }
        ongoing = [label(binding) for binding in bindings(main) if binding.var in times.recurrences]
        cost = HopCost(
            macs=total(written.sequence, of_tir), window_macs=total(reached(main), of_tir),
            remarks=remarks(written.sequence, times.whole, written.whole, written.borders, of_tir, ongoing),
        )  # fmt: skip
        warm_up = WarmUp(runs=-(-frames // self.hop) - 1, goes_on=bool(ongoing))
        return cost.write(warm_up.write(KeptStates(states=(*kept, *written.states)).write(changed)))

    def _shortened(self, loop: tvm.tirx.PrimFunc, stacked: Sequence[int], steps: int) -> tvm.tirx.PrimFunc:
        assert self.shorten is not None, "a model with recurrent layers needs it"
        return self.shorten(loop, stacked, steps)


def _input(main: relax.Function, name: str, num_states: int) -> relax.Var:
    inputs = main.params[: len(main.params) - num_states]
    found = next((param for param in inputs if param.name == name), None)
    if found is None:
        raise BadOptions(
            f"new_frames: {name!r} is not an input; the inputs are {', '.join(param.name for param in inputs)}."
        )
    return found


def _times(mod: tvm.IRModule, param: relax.Var, hop: int, axis: int | None) -> Times:
    """Return the times of the values along the given axis, or along the only axis that is possible.

    Raises BadOptions where several axes are possible or the axis does not exist, UnsupportedModel where no axis is
    possible.
    """
    shape = static_shape(param)
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise BadOptions(f"new_frames: {param.name!r} has the shape {list(shape)}; it has no axis {axis}.")
    tried = range(len(shape)) if axis is None else [axis % len(shape)]
    found = {one: times_of(mod, param, one) for one in tried if shape[one] > 1 or axis is not None}
    possible = {one: times for one, times in found.items() if len(times.over) > 1 or times.recurrences}
    if len(possible) > 1:
        named = ", ".join(f"{one} ({shape[one]})" for one in possible)
        raise BadOptions(f"new_frames: {param.name!r}, {list(shape)}, may go over axes {named}; say which one is time.")
    if not possible:
        reasons = {f"{name} {reason}" for times in found.values() for name, reason in times.whole.items()}
        raise UnsupportedModel(
            f"input {param.name!r} cannot be turned into a stream: {'; '.join(sorted(reasons))[:600]}. Leave "
            f"new_frames out for the model to take the window whole: {cost_of_window(mod['main'], param)}."
        )
    ((chosen, times),) = possible.items()
    if not 0 < hop <= shape[chosen]:
        raise BadOptions(
            f"new_frames {param.name}={hop}: the window has {shape[chosen]} frames; give 1 to {shape[chosen]}."
        )
    return times
