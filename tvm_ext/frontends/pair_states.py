"""Pair an input and an output that form a state: the next run reads in the input what a run writes to the output.

Pairs are given by name, or found where names and shapes leave no doubt: `h` and `hn`, `state_in` and `state_out`,
`past_key` and `present_key`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from tvm import relax

from relay_passes.dataflow import bindings, outputs, rebuild, static_shape
from tvm_ext.core.errors import BadInput, BadOptions
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.shapes import ModelNotice

Pairs = Mapping[str, str]
Initial = Mapping[str, np.ndarray]

_FOLLOWING = {"prev": ("next", "new"), "previous": ("next", "new"), "past": ("present",), "old": ("new",),
              "cur": ("next",), "current": ("next",)}  # fmt: skip
"""Words that tell a value of the previous run from the value of this run."""
_PORTS = {"in": ("out",), "input": ("output",), "0": ("n", "1"), "initial": ("final",)}
_ENDINGS = ("n", "N", "_n", "_N", "_out", "_next", "_new", "_1", ".1", "out", "Out", "Next")
_STATE_WORDS = frozenset("h c hn cn hidden cell state states context cache buf buffer mem memory".split())
"""Words that mark a name as a state. Only with these do `in` and `out` belong together."""


def with_states(loaded: Loaded, pairs: Pairs | None, initial: Initial | None = None) -> Loaded:
    """Return the model with these inputs and outputs turned into states.

    pairs: output by input. None finds them by name, with a ModelNotice; an empty mapping finds none.
    initial: initial values of states by input, zeros by default.
    Raises BadOptions, BadInput.
    """
    chosen = _found(loaded) if pairs is None else pairs
    if pairs is None and chosen:
        listed = ", ".join(f"{source}={target}" for source, target in chosen.items())
        warnings.warn(
            f"kept from one run to the next, by their names and shapes: {listed}. They are no inputs and outputs any "
            "more; --state none leaves them as they are.",
            ModelNotice,
            stacklevel=3,
        )
    _check(loaded, chosen, initial or {})
    return _paired(loaded, chosen, initial or {}) if chosen else loaded


def _paired(loaded: Loaded, pairs: Pairs, initial: Initial) -> Loaded:
    main = loaded.mod["main"]
    params, results = dict(zip(_all_inputs(loaded), main.params, strict=True)), _results(loaded)
    states = [
        ModelState(name=name, initial=_begin(params[name], initial.get(name)), output=output)
        for name, output in pairs.items()
    ]
    first = [name for name in loaded.input_names if name not in pairs]
    kept = [name for name in loaded.output_names if name not in pairs.values()]
    before = len(loaded.states)
    old = list(params.values())[len(loaded.input_names) :], list(results.values())[len(loaded.output_names) :]
    assert before == len(old[0]) == len(old[1]), "every state is a parameter and a result"
    ordered = relax.Function(
        [*(params[name] for name in first), *old[0], *(params[name] for name in pairs)],
        main.body, main.ret_ty, main.is_pure, main.attrs,
    )  # fmt: skip
    returned = [*(results[name] for name in kept), *old[1], *(results[name] for name in pairs.values())]
    mod = loaded.mod.clone()
    mod.update_func(mod.get_global_var("main"), rebuild(ordered, bindings(main), returned, as_tuple=True))
    return replace(
        loaded, mod=mod, input_names=tuple(first), output_names=tuple(kept), states=(*loaded.states, *states)
    )


def _begin(param: relax.Var, given: np.ndarray | None) -> np.ndarray:
    return np.zeros(static_shape(param), str(param.ty.dtype)) if given is None else given


def _all_inputs(loaded: Loaded) -> list[str]:
    return [*loaded.input_names, *(state.name for state in loaded.states)]


def _results(loaded: Loaded) -> dict[str, relax.Expr]:
    names = [*loaded.output_names, *(f"{state.name}.next" for state in loaded.states)]
    return dict(zip(names, outputs(loaded.mod["main"]), strict=True))


def _check(loaded: Loaded, pairs: Pairs, initial: Initial) -> None:
    """Raise BadOptions for unknown inputs or outputs and for pairs of different types, BadInput for bad values."""
    params = dict(zip(_all_inputs(loaded), loaded.mod["main"].params, strict=True))
    results = _results(loaded)
    for source, target in pairs.items():
        for name, known, kind in ((source, loaded.input_names, "input"), (target, loaded.output_names, "output")):
            if name not in known:
                raise BadOptions(f"state {source}={target}: {name!r} is no {kind}; there are {', '.join(known)}.")
        if list(pairs.values()).count(target) > 1:
            raise BadOptions(f"state {source}={target}: output {target!r} belongs to another state already.")
        one, other = params[source], results[target]
        if static_shape(one) != static_shape(other) or str(one.ty.dtype) != str(other.ty.dtype):
            raise BadOptions(
                f"state {source}={target}: the input is {one.ty.dtype}{list(static_shape(one))}, the output "
                f"{other.ty.dtype}{list(static_shape(other))}; they must have the same shape and type."
            )
    if len(pairs) == len(loaded.output_names):
        raise BadOptions("state: every output would be a state, so that the model would have no output.")
    for name, value in initial.items():
        if name not in pairs:
            raise BadInput(f"initial value of {name!r}: it is no state; states are {', '.join(pairs) or 'none'}.")
        shape, dtype = static_shape(params[name]), str(params[name].ty.dtype)
        if value.shape != shape or str(value.dtype) != dtype:
            raise BadInput(
                f"initial value of {name!r} is {value.dtype}{list(value.shape)}; the state is {dtype}{list(shape)}."
            )


def _found(loaded: Loaded) -> dict[str, str]:
    """Return pairs of equal shape and type whose names mean the same value, and unambiguously so."""
    main = loaded.mod["main"]
    inputs = dict(zip(loaded.input_names, main.params, strict=False))
    results = dict(zip(loaded.output_names, outputs(main), strict=False))
    if len(inputs) < 2 or len(results) < 2:
        return {}
    partners = {
        name: [
            other
            for other, result in results.items()
            if other in set(_next_names(name))
            and static_shape(result) == static_shape(param)
            and str(result.ty.dtype) == str(param.ty.dtype)
        ]
        for name, param in inputs.items()
    }
    pairs = {name: found[0] for name, found in partners.items() if len(found) == 1}
    chosen = {name: other for name, other in pairs.items() if list(pairs.values()).count(other) == 1}
    return chosen if len(chosen) < len(results) and len(chosen) < len(inputs) else {}


def _next_names(name: str) -> Iterator[str]:
    """Yield the names that the value would have as an output."""
    words = re.split(r"([_./:-])", name)
    is_state = not _STATE_WORDS.isdisjoint(word.lower().rstrip("0123456789") for word in words)
    is_state = is_state or re.search(r"state|cache|hidden", name, re.IGNORECASE) is not None
    partners = {**_FOLLOWING, **(_PORTS if is_state else {})}
    for place, word in enumerate(words):
        for following in partners.get(word.lower(), ()):
            yield "".join([*words[:place], following, *words[place + 1 :]])
    if is_state:
        yield from (f"{name}{ending}" for ending in _ENDINGS)
        yield from (f"{first}{separator}{name}" for first in ("new", "next", "out", "output") for separator in "_.")
        if name.endswith("0"):
            yield from (f"{name[:-1]}{ending}" for ending in ("n", "N", "1"))
