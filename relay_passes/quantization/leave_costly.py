"""Leave units in float that integers would make slower, by the cycles that the kernels of both forms are predicted to
take and by the conversions between integers and floats.

The units are put side by side in one module, each with inputs and results of its own, so that the cost of each is known
apart from the others, once in float and once in QDQ form. The choice of all units is then a minimum cut
(`solvers/two_sides.py`). It is taken only if the whole network becomes faster by the same predictions, and not larger
than it would be in float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import tvm
from tvm import relax

from relay_passes.analysis.choose_precision import UnitReason
from relay_passes.analysis.int8_parameters import affine_of_range
from relay_passes.analysis.module_costs import CostsOf, ModuleCosts
from relay_passes.analysis.quantization_units import Unit, is_float_tensor
from relay_passes.analysis.run_units import IntegerChoice
from relay_passes.dataflow import build, infer, num_elements, static_shape, substitute, with_main
from relay_passes.quantization.insert_qdq import insert_qdq
from relay_passes.solvers.two_sides import NEVER, Exchange, TwoSides
from tvm_ext.core.decisions.models import ModelOrigin

_PROBE = "conversion"
_PROBE_ELEMENTS = 1024


@dataclass(frozen=True, kw_only=True)
class CostRule:
    """The rule by which predicted costs decide whether a unit runs in integers or in float.

    costs_of: the prediction. moves_to_float: whether units may be left in float for their cost. most_peak_bytes: live
    bytes up to which the peak of the schedule may rise by that.
    """

    costs_of: CostsOf
    moves_to_float: bool = True
    most_peak_bytes: int = 0

    def allows(self, tried: ModuleCosts, before: ModuleCosts, in_float: ModuleCosts) -> bool:
        """Return True if a network with units left in float is better than before by the predictions."""
        is_small = tried.num_bytes <= max(before.num_bytes, in_float.num_bytes)
        fits = tried.peak_bytes <= max(before.peak_bytes, self.most_peak_bytes)
        return tried.cycles < before.cycles and is_small and fits


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """Predicted cycles of units in both forms, by index, and of the conversion of an element in both directions."""

    integer: Mapping[int, float]
    floats: Mapping[int, float]
    dequantize: float
    quantize: float


def unit_costs(mod: tvm.IRModule, units: Sequence[Unit], choice: IntegerChoice, costs_of: CostsOf) -> UnitCosts | None:
    """Return the costs of the units that compute in integers by `choice`; None where they are not known.

    Recurrent units are left out. Wide units count with activations of 16 bits.
    """
    indices = [i for i in sorted(choice.units) if units[i].kind in ("linear", "compute")]
    apart = [_apart(units[index], index) for index in indices]
    params = [param for unit in apart for param in unit.inputs]
    results = [unit.result for unit in apart]
    sequence = [member for unit in apart for member in unit.members]
    narrow, wide = dict(choice.activations), dict(choice.wide_activations)
    for index, unit in zip(indices, apart, strict=True):
        pairs = [*zip(units[index].inputs, unit.inputs, strict=True), (units[index].result, unit.result)]
        for known in (narrow, wide):
            known.update({copy: known[own] for own, copy in pairs if own in known})
    positions = range(len(indices))
    alone = IntegerChoice(
        units=frozenset(positions), activations=narrow, wide_activations=wide, inputs=frozenset(params),
        linear={position: choice.linear[index] for position, index in enumerate(indices) if index in choice.linear},
        wide=frozenset(position for position in positions if indices[position] in choice.wide),
        wide_inputs=frozenset(p for index, unit in zip(indices, apart, strict=True) if index in choice.wide
                              for p in unit.inputs),
    )  # fmt: skip
    main = build(params, sequence, results, as_tuple=True)
    written = insert_qdq(main, apart, alone, integer_results=True)
    probes, converting, converted = _conversions()
    with_probes = build([*params, *probes], [*sequence, *converting], [*results, *converted], as_tuple=True)
    in_float, in_integers = costs_of(_alone(mod, with_probes)), costs_of(_alone(mod, written.function))
    if in_float is None or in_integers is None:
        return None
    names = {param.name: index for index, unit in zip(indices, apart, strict=True) for param in unit.inputs}
    floats, integer = _by_unit(in_float, names), _by_unit(in_integers, names)
    to_real, to_integer = (_of_input(in_float, probe.name) / _PROBE_ELEMENTS for probe in probes)
    return UnitCosts(
        integer={index: integer.get(index, 0.0) for index in indices},
        floats={index: floats.get(index, 0.0) for index in indices}, dequantize=to_real, quantize=to_integer,
    )  # fmt: skip


def _alone(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """Return a module with another main and none of the attributes that describe the old one."""
    functions = {var: func for var, func in mod.functions_items() if var.name_hint != "main"}
    made = with_main(tvm.IRModule({**functions, tvm.ir.GlobalVar("main"): main}), main)
    return ModelOrigin(rounding="onnx").write(made)


def _apart(unit: Unit, index: int) -> Unit:
    """Return a unit with inputs, values and names of its own."""
    inputs = tuple(
        relax.Var(f"unit_{index}_input_{place}", relax.TensorType(static_shape(var), "float32"))
        for place, var in enumerate(unit.inputs)
    )
    known: dict[relax.Var, relax.Expr] = dict(zip(unit.inputs, inputs, strict=True))
    members = list[relax.VarBinding]()
    for place, member in enumerate(unit.members):
        last = place + 1 == len(unit.members)
        var = (relax.Var if last else relax.DataflowVar)(f"unit_{index}_value_{place}", member.var.ty)
        members.append(relax.VarBinding(var, substitute(member.value, known)))
        known[member.var] = var
    return replace(unit, inputs=inputs, members=tuple(members))


def _conversions() -> tuple[list[relax.Var], list[relax.VarBinding], list[relax.Var]]:
    """Return inputs, bindings and results of a dequantize and a quantize of a vector."""
    affine, shape = affine_of_range(-1.0, 1.0), (1, _PROBE_ELEMENTS)
    scale, zero_point = relax.const(affine.scale, "float32"), relax.const(affine.zero_point, affine.dtype)
    steps = relax.Var(f"{_PROBE}_steps", relax.TensorType(shape, affine.dtype))
    real = relax.Var(f"{_PROBE}_real", relax.TensorType(shape, "float32"))
    calls = [
        infer(relax.op.dequantize(steps, scale, zero_point, out_dtype="float32")),
        infer(relax.op.quantize(real, scale, zero_point, out_dtype=affine.dtype)),
    ]
    made = [relax.VarBinding(relax.Var(f"{_PROBE}_{place}", call.ty), call) for place, call in enumerate(calls)]
    return [steps, real], made, [binding.var for binding in made]


def _by_unit(costs: ModuleCosts, units: Mapping[str, int]) -> dict[int, float]:
    """Return the cycles of units put apart, by the names of their inputs, without moves at their borders."""
    found: dict[int, float] = {}
    for operator in costs.operators:
        owners = {units[name] for name in operator.inputs if name in units}
        if not operator.only_moves and len(owners) == 1:
            (owner,) = owners
            found[owner] = found.get(owner, 0.0) + operator.cycles
    return found


def _of_input(costs: ModuleCosts, name: str) -> float:
    return sum(operator.cycles for operator in costs.operators if name in operator.inputs)


def costly(
    units: Sequence[Unit], choice: IntegerChoice, costs: UnitCosts, ports: Set[relax.Var]
) -> tuple[frozenset[int], list[UnitReason]]:
    """Return the units of `choice` that cost less in float, with the reason for each.

    ports: inputs and results of the function. The units beside them, also through moves, stay as they are, because the
    types of the inputs and outputs would change with them.
    """
    problem = _problem(units, choice, costs, _near(units, ports))
    kept = problem.best()
    left = frozenset(index for index in costs.integer if index not in kept)
    together: dict[str, frozenset[int]] = {}  # operators of a model that became several units
    for index in sorted(left):
        together[units[index].name] = together.get(units[index].name, frozenset()) | {index}
    price, reasons = problem.price(kept), list[UnitReason]()
    for name, own in together.items():
        saved = problem.price(kept | own) - price
        integer, floats = (sum(known[index] for index in own) for known in (costs.integer, costs.floats))
        reasons.append(UnitReason(name=name, reason=(
            f"in integers it takes {integer:,.0f} cycles, in float {floats:,.0f}; float saves {saved:,} with the "
            "conversions at its borders"
        )))  # fmt: skip
    return left, reasons


def _problem(units: Sequence[Unit], choice: IntegerChoice, costs: UnitCosts, near: Set[int]) -> TwoSides:
    first, second = [0] * len(units), [0] * len(units)
    for index, unit in enumerate(units):
        if index in costs.integer and index not in near:
            first[index], second[index] = round(costs.integer[index]), round(costs.floats[index])
        elif index in choice.units and unit.kind != "move":
            second[index] = NEVER
        elif index not in choice.units and any(map(is_float_tensor, (*unit.inputs, unit.result))):
            first[index] = NEVER
    readers: dict[relax.Var, list[int]] = {}
    for index, unit in enumerate(units):
        for var in unit.inputs:
            readers.setdefault(var, []).append(index)
    exchanges = [
        Exchange(
            maker=index, readers=tuple(readers[unit.result]),
            leaving=round(costs.dequantize * num_elements(unit.result)),
            entering=round(costs.quantize * num_elements(unit.result)),
        )
        for index, unit in enumerate(units)
        if unit.result in readers and is_float_tensor(unit.result)
    ]  # fmt: skip
    return TwoSides(first=first, second=second, exchanges=exchanges)


def _near(units: Sequence[Unit], ports: Set[relax.Var]) -> frozenset[int]:
    """Return the units that read an input or compute a result of the function, also through moves."""
    before, after, found = set(ports), set(ports), set[int]()
    for index, unit in enumerate(units):
        if not before.isdisjoint(unit.inputs):
            found.add(index)
            if unit.kind == "move":
                before.add(unit.result)
    for index, unit in reversed(list(enumerate(units))):
        if unit.result in after:
            found.add(index)
            if unit.kind == "move":
                after.update(unit.inputs)
    return frozenset(found)


@dataclass(frozen=True, kw_only=True)
class ChosenByCost:
    """A choice of integer units after costs counted. left: the units that they left in float. report: both totals."""

    choice: IntegerChoice
    left: tuple[UnitReason, ...] = ()
    report: Mapping[str, object]


def choose_by_cost(
    rule: CostRule,
    mod: tvm.IRModule,
    units: Sequence[Unit],
    choice: IntegerChoice,
    ports: Set[relax.Var],
    *,
    without: Callable[[frozenset[int]], IntegerChoice],
    written: Callable[[IntegerChoice], tvm.IRModule],
) -> ChosenByCost:
    """Return the choice without units that cost less in float, where the whole network then costs less.

    ports: as `costly` takes them. without: returns the choice without some units. written: returns a choice's module.
    """
    in_float, before = rule.costs_of(mod), rule.costs_of(written(choice))
    if in_float is None or before is None:
        return ChosenByCost(choice=choice, report={})
    whole = {"float32": in_float.report()}
    costs = unit_costs(mod, units, choice, rule.costs_of) if rule.moves_to_float else None
    left, reasons = costly(units, choice, costs, ports) if costs else (frozenset[int](), [])
    if left:
        tried = without(left)
        after = rule.costs_of(written(tried)) if any(units[i].computes for i in tried.units) else None
        if after is not None and rule.allows(after, before, in_float):
            return ChosenByCost(choice=tried, left=tuple(reasons), report={"costs": {**whole, "int8": after.report()}})
    return ChosenByCost(choice=choice, report={"costs": {**whole, "int8": before.report()}})
