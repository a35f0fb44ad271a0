"""Kernels and methods that a build seldom takes: each method to fit by itself, and plain C."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import tvm

from codegen_c.backend.build import Compiled
from tvm_ext.compilation.model_forms import forms_of, streamed_forms
from tvm_ext.compilation.pipeline import compile_module, fitter_of
from tvm_ext.core.errors import DoesNotFit, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Fitter
from tvm_ext.fitting.methods import FitMethod, fit_methods
from tvm_ext.fitting.next_try import Try


def every_way(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, seed: int
) -> Iterator[tuple[str, Compiled]]:
    """A model by each method that makes it fit: some offer, and the last one, which is the smallest.

    options: without limits; what a search would take is not asked.
    """
    forms = streamed_forms(forms_of(mod, platform, options, None), options)
    rng, fitter = random.Random(seed), fitter_of(forms, platform, options)
    for method in fit_methods(options):
        offers = fitter.offers(method)
        for index in sorted({rng.randrange(len(offers)), len(offers) - 1} if offers else ()):
            compiled = _compiled(fitter, method, index, options)
            if compiled is not None:
                yield f"{method.name} {index}", compiled


def in_plain_c(mod: tvm.IRModule) -> Compiled | None:
    """A model by the kernels of processors without vectors; None where these do not take it."""
    host = Platform.load("host")
    processors = tuple(replace(core, simd="none") for core in host.processors)
    try:
        return compile_module(mod, replace(host, processors=processors), BuildOptions())
    except (DoesNotFit, UnsupportedModel):
        return None


def _compiled(fitter: Fitter, method: FitMethod, index: int, options: BuildOptions) -> Compiled | None:
    """Result of an offer; None where there is none, or the platform does not hold it."""
    try:
        return fitter.compiled(method, Try(method=method.name, index=index), options)
    except DoesNotFit:
        return None
