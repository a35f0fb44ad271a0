"""States of recurrent layers that keep 16 bits from run to run.

The cell of an LSTM and the hidden state of a GRU add up small changes, which 8 bits would round away. A state of the
model that such a layer reads and leaves keeps the layer's own parameters, also through moves between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax

from relay_passes.analysis.int8_parameters import AffineQuantization
from relay_passes.analysis.quantization_units import Unit


@dataclass(frozen=True, kw_only=True, eq=False)
class WideStates:
    """Parameters of the wide states: of parameters of the function, and of the moves that bring them to layers."""

    params: Mapping[relax.Var, AffineQuantization] = field(default_factory=dict)
    moves: Mapping[int, AffineQuantization] = field(default_factory=dict)


NO_WIDE_STATES = WideStates()


def wide_states(
    units: Sequence[Unit],
    states: Mapping[int, tuple[AffineQuantization, ...]],
    ties: Sequence[tuple[relax.Var, relax.Var]],
) -> WideStates:
    """Return the wide states of a function. states: parameters of each recurrent unit. ties: params and next values."""
    makers = {unit.result: index for index, unit in enumerate(units)}
    params: dict[relax.Var, AffineQuantization] = {}
    moves: dict[int, AffineQuantization] = {}
    for index, parameters in states.items():
        own = units[index].recurrent
        place = own.cell.wide_state if own is not None else None
        if own is None or place is None or not isinstance(begin := own.states[place], relax.Var):
            continue
        ahead = list(_moves_to(units, makers, begin))
        source = units[ahead[-1]].inputs[0] if ahead else begin
        if source in makers:
            continue
        params[source] = parameters[place]
        moves |= dict.fromkeys(ahead, parameters[place])
        for param, result in ties:
            after = list(_moves_to(units, makers, result))
            part = units[after[-1]].inputs[0] if after else result
            maker = units[makers[part]] if part in makers else None
            is_next = maker is not None and maker.kind == "part" and maker.inputs[0].same_as(units[index].result)
            if param.same_as(source) and is_next and maker.members[0].value.index == place:
                moves |= dict.fromkeys(after, parameters[place])
    return WideStates(params=params, moves=moves)


def _moves_to(units: Sequence[Unit], makers: Mapping[relax.Var, int], var: relax.Var) -> Iterator[int]:
    """Yield the units that move a single value to `var`, the last first, as far as nothing else reads it."""
    while (index := makers.get(var)) is not None and units[index].kind == "move" and len(units[index].inputs) == 1:
        if sum(var in unit.inputs for unit in units) > 1:
            return
        yield index
        (var,) = units[index].inputs
