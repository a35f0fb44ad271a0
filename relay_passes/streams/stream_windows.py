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
    Attention reads the new rows of queries, and rows of keys and values that are kept.
    Recurrent layers run for the new rows only, and their states go on from run to run. Rows of such a model go on, too:
    padding ahead of row 0 is in the states after a reset, and no row is computed again because a window begins with it.
Leaves alone: values that are not over time. A model without values over time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, static_shape
from relay_passes.streams.attentions import attentions_of
from relay_passes.streams.hop_costs import cost_of_window, label, named, reached, remarks, total
from relay_passes.streams.hop_writer import HopFunction, write_hop
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
        stream = self._or_ongoing(mod, param, self._stream(mod, _times(mod, param, self.hop, self.axis)))
        times, written = stream.times, stream.written
        frames = static_shape(param)[times.over[param].axis]
        changed = mod.clone()
        changed.update_func(changed.get_global_var("main"), written.func)
        for var, function in written.functions.items():
            changed.update_func(var, function)
        cost = HopCost(
            macs=stream.macs, window_macs=total(reached(main), stream.of_tir),
            remarks=(
                *_ongoing(main, times),
                *remarks(written.sequence, times.whole, written.whole, written.borders, stream.of_tir),
            ),
        )  # fmt: skip
        warm_up = WarmUp(runs=-(-frames // self.hop) - 1, goes_on=times.goes_on)
        return cost.write(warm_up.write(KeptStates(states=(*kept, *written.states)).write(changed)))

    def _stream(self, mod: tvm.IRModule, times: Times) -> _Stream:
        written = write_hop(
            mod["main"], times, self.hop, lambda loop, stacked, steps: self._shortened(mod[loop], stacked, steps)
        )
        functions = {**dict(mod.functions_items()), **written.functions}
        of_tir = {var.name_hint: self.count(f) for var, f in functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
        return _Stream(times=times, written=written, of_tir=of_tir, macs=total(written.sequence, of_tir))

    def _or_ongoing(self, mod: tvm.IRModule, param: relax.Var, exact: _Stream) -> _Stream:
        """Return the stream whose attentions go on where only these can be computed by rows of time.

        The first rows of a window have fewer rows ahead of them to read, so their attention differs from run to run,
        and so does everything that is computed from them. A second attention then has no rows that stay the same.
        """
        if exact.times.goes_on or not attentions_of(mod["main"]):
            return exact
        times = times_of(mod, param, exact.times.over[param].axis, self.hop, goes_on=True)
        try:
            ongoing = self._stream(mod, times) if times.attentions else exact
        except (BadOptions, UnsupportedModel):
            return exact
        more = times.attentions.keys() - exact.times.attentions.keys()
        return ongoing if more and ongoing.macs < exact.macs else exact

    def _shortened(self, loop: tvm.tirx.PrimFunc, stacked: Sequence[int], steps: int) -> tvm.tirx.PrimFunc:
        assert self.shorten is not None, "a model with recurrent layers needs it"
        return self.shorten(loop, stacked, steps)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stream:
    """A model as a stream. of_tir: multiply-accumulates of its TIR functions; macs: those of a run."""

    times: Times
    written: HopFunction
    of_tir: Mapping[str, int]
    macs: int


def _ongoing(main: relax.Function, times: Times) -> list[str]:
    """Return sentences on what goes on from run to run, so that outputs are not those of a window alone."""
    if not times.goes_on:
        return []
    labels = {binding.var: label(binding) for binding in bindings(main)}
    rules = {var: rule for var, rule in times.attentions.items() if rule.slide_over(1).begin(0) < 0}
    layers = [f"the states of {', '.join(named([labels[var] for var in times.recurrences]))}"] * bool(times.recurrences)
    reads = [f"the keys and values of {', '.join(named([labels[var] for var in rules]))}"] * bool(rules)
    return [
        f"{' and '.join(layers + reads)} go on from run to run, so outputs are those of all frames since the reset, "
        "and not of a window that begins in the initial state"
    ]


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
    found = {one: times_of(mod, param, one, hop) for one in tried if shape[one] > 1 or axis is not None}
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
