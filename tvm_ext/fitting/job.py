"""Jobs of a service: a try to make a model fit, and what comes before it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import tvm

from codegen_c.kernels.figures import KernelFigures
from tvm_ext.compilation.pipeline import fitter_of
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Asked, Fitter
from tvm_ext.fitting.methods import fit_methods
from tvm_ext.fitting.next_try import Try


def try_job(one: bytes, options: bytes, platform: bytes, figures: bytes, module: bytes) -> bytes:
    """Outcome of a try as JSON. options: with the limits of memories; figures: of kernels, measured; module: in the
    form that the method compiles."""
    asked, chosen, fitter = _read(one, options, platform, figures, module)
    return fitter.outcome(asked, chosen, iter(())).to_json().encode()


def read_job(one: bytes, options: bytes, platform: bytes, figures: bytes, module: bytes) -> bytes:
    """Nothing: what the tries of a module in one form share is known to this process from now on."""
    (method, _), chosen, fitter = _read(one, options, platform, figures, module)
    for other in fit_methods(chosen):
        if other.options.quantize == method.options.quantize:
            fitter.offers(other)
    return b""


def _read(
    one: bytes, options: bytes, platform: bytes, figures: bytes, module: bytes
) -> tuple[Asked, BuildOptions, Fitter]:
    values = json.loads(one)
    values["less_bytes"] = tuple((memory, num_bytes) for memory, num_bytes in values["less_bytes"])
    asked, chosen = Try(**values), BuildOptions.from_json(options.decode())
    method = next(method for method in fit_methods(chosen) if method.name == asked.method)
    return (method, asked), chosen, _known_model(replace(chosen, ram=None).to_json(), platform, figures, module)


@lru_cache(maxsize=2)
def _known_model(options: str, platform: bytes, figures: bytes, module: bytes) -> Fitter:
    loaded, chosen = tvm.ir.load_json(module.decode()), BuildOptions.from_json(options)
    known = KernelFigures.from_text(figures.decode())
    return fitter_of(lambda _: loaded, Platform.from_json(platform.decode()), chosen, figures=known)
