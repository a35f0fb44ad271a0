"""Evaluation of a model in float64, and of the change that rounding to float32 causes. Runs in a child process.

Every value is computed once without rounding, and then several times with each operator's operands and result changed
by the size of a rounding error, up or down at random (`float64_module`). The last runs use the larger errors of other
runtimes.

In every second of these runs, a value of a loop's step is changed the same way in all steps. Rounding errors of steps
are not independent where a state changes little: a gate of 0.99999998 is rounded to 1 each time, and the errors of
1,000 steps add up to 1,000 times one error, not to 30 times. States that are forgotten soon get about the same noise
in both kinds of runs.

The noise of an element is the largest change in its slice along an axis, for the axis where that is smallest. A channel
of small numbers has its own noise therefore, and the function need not know the axis of the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm_ffi.registry import remove_global_func

from codegen_c.tir.llvm import compiled_with_llvm
from tvm_ext.frontends.custom_calls import Running, register_references
from tvm_ext.verification.float64_module import LARGEST, MOST_MACS_AS_WRITTEN, Stop, in_float64, multiply_accumulates
from tvm_ext.verification.reference_runtimes.reference_result import Array, Carried, Sample

_MOST_REPEATS, _LEAST_REPEATS = 8, 2
_OTHERS_REPEATS = 2
_LEAST_CHANGES = 8
_KINDS = ("", "noise_", "others_noise_")
_MOST_MACS, _MOST_STOPS = 1_000_000_000, 60_000
"""Multiply-accumulates and stops of all runs together that limit the number of runs. Either takes a few seconds."""


def run_reference(
    module: str,
    output_names: Sequence[str],
    samples: Sequence[Sample],
    inner: Sequence[str],
    states: Carried = (),
    *,
    ask: Running | None = None,
) -> dict[str, Any]:
    """Return `outputs` and `inner`, floats as float64, and the noise of each with the prefixes of `_KINDS`.

    `noise_` is the noise of rounding in our C code, `others_noise_` in runtimes that approximate functions with an
    absolute error. All are a dict of arrays for each sample.
    module: JSON of a module from `load`, whose last parameters are the states. ask: as in `tvm_runtime`.
    """
    mod = tvm.ir.load_json(module)
    if ask is not None:
        register_references(mod, ask)
    recorder = _Recorder()
    rounded, stops = in_float64(mod, inner, f"tvm_ext.float64_{id(recorder):x}")
    recorder.others_differ = any(stop.others_bound != stop.bound for stop in stops)
    try:
        for stop in stops:
            tvm_ffi.register_global_func(stop.symbol, partial(recorder.stop, stop), override=True)
        repeats = _num_repeats(mod, len(stops), len(samples))
        num_macs = multiply_accumulates(mod) * len(samples) * (1 + repeats + _OTHERS_REPEATS)
        run = compiled_with_llvm(rounded, optimized=num_macs > MOST_MACS_AS_WRITTEN)
        return _evaluated(recorder, run, rounded, output_names, samples, states, repeats)
    finally:
        for stop in stops:
            remove_global_func(stop.symbol)


def _evaluated(
    recorder: _Recorder,
    run: Callable[[Sequence[Array]], list[Array]],
    rounded: tvm.IRModule,
    output_names: Sequence[str],
    samples: Sequence[Sample],
    states: Carried,
    repeats: int,
) -> dict[str, Any]:
    params = rounded["main"].params
    ported = [param.name for param in params[: len(params) - len(states)]]
    dtypes = [str(param.ty.dtype) for param in params]
    runs = [*(["exact"] + ["noise"] * repeats), *(["others"] * _OTHERS_REPEATS if recorder.others_differ else [])]
    given = [[np.asarray(state["initial"]) for state in states] for _ in runs]
    results: dict[str, list[dict[str, Array]]] = {
        f"{kind}{part}": [] for kind in _KINDS for part in ("outputs", "inner")
    }
    for number, sample in enumerate(samples):
        recorder.begin(dict(zip((state["name"] for state in states), given[0], strict=True)))
        for values_by_name in results.values():
            values_by_name.append({})
        for index, run_kind in enumerate(runs):
            recorder.kind, recorder.random = run_kind, np.random.default_rng((number, index))
            recorder.alike = index % 2 == 1
            arrays = [*(sample[name] for name in ported), *given[index]]
            values = run([array.astype(dtype) for array, dtype in zip(arrays, dtypes, strict=True)])
            given[index] = values[len(output_names) : len(output_names) + len(states)]
            for name, value in zip(output_names, values, strict=False):
                recorder.take(("outputs", name), value)
        for (part, name), value in recorder.exact.items():
            noise = recorder.noise.get((part, name))
            results[part][number][name] = value
            if noise is not None:
                results[f"noise_{part}"][number][name] = shared_noise(noise, repeats)
                others = recorder.others.get((part, name), noise)
                results[f"others_noise_{part}"][number][name] = shared_noise(np.maximum(noise, others), repeats)
    return results


def _num_repeats(mod: tvm.IRModule, num_stops: int, num_samples: int) -> int:
    """Return the number of runs of each sample with rounding errors."""
    macs = max(multiply_accumulates(mod), 1) * num_samples
    affordable = min(_MOST_MACS // macs, _MOST_STOPS // max(num_stops * num_samples, 1))
    return min(max(affordable, _LEAST_REPEATS), _MOST_REPEATS)


Place = tuple[str, str]
"""`outputs` or `inner`, and the name of a value."""


class _Recorder:
    """Values of a sample without rounding errors, and the largest change of each element in runs with such errors.

    kind: kind of the current run, `exact`, `noise` or `others`. random: source of the signs of rounding errors.
    alike: all steps of a loop have the same signs.
    """

    def __init__(self) -> None:
        self.kind, self.random = "exact", np.random.default_rng(0)
        self.others_differ = self.alike = False
        self.begin({})

    def begin(self, states: dict[str, Array]) -> None:
        self.exact: dict[Place, Array] = {("inner", name): array for name, array in states.items()}
        self.noise: dict[Place, Array] = {}
        self.others: dict[Place, Array] = {}

    def stop(self, stop: Stop, value: tvm.runtime.Tensor, result: tvm.runtime.Tensor) -> None:
        array = value.numpy()
        # Values beyond float32 become infinite, also in the run without rounding errors.
        array = np.where(np.abs(array) > LARGEST, np.copysign(np.inf, array), array)
        if self.kind != "exact" and stop.roundoff:
            bound = stop.others_bound if self.kind == "others" else stop.bound
            size = np.maximum(np.abs(array), bound) * stop.roundoff
            drawn = array.shape[stop.step_axes :] if self.alike else array.shape
            signs = self.random.integers(0, 2, drawn, np.int8) * 2.0 - 1.0
            # Infinity has no rounding error, and rounding to the nearest number makes no finite number infinite.
            with np.errstate(invalid="ignore"):
                array = np.where(np.isfinite(array), np.clip(array + signs * size, -LARGEST, LARGEST), array)
        if stop.name:
            self.take(("inner", stop.name), array)
        result.copyfrom(array)

    def take(self, place: Place, value: Array) -> None:
        """Keep a value of the exact run, or the change of the value in another run."""
        if self.kind == "exact":
            self.exact[place] = value
        else:
            noise = self.others if self.kind == "others" else self.noise
            noise[place] = _further(noise.get(place), self.exact[place], value)


def _further(noise: Array | None, exact: Array, moved: Array) -> Array:
    """Return the larger of noise and change by element; a change from or to NaN is infinite."""
    a, b = exact.astype(np.float64), moved.astype(np.float64)
    with np.errstate(invalid="ignore"):
        change = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    change[np.isnan(change)] = np.inf
    return change if noise is None else np.maximum(noise, change)


def shared_noise(noise: Array, repeats: int = _LEAST_CHANGES) -> Array:
    """Return the noise of each element as the smallest over the axes of the largest finite noise in its slice.

    Axes whose slices have few elements and few runs are skipped, because all changes in a slice may be small by chance.
    """
    finite = np.where(np.isfinite(noise), noise, 0.0)
    shared = np.full(noise.shape, finite.max(initial=0.0))
    for axis, extent in enumerate(noise.shape):
        if extent > 1 and noise.size // extent * repeats >= _LEAST_CHANGES:
            others = tuple(other for other in range(noise.ndim) if other != axis)
            shared = np.minimum(shared, finite.max(axis=others, keepdims=True))
    return np.where(np.isfinite(noise), shared, np.inf)
