"""The job of a service: compile a try."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import tvm

from codegen_c.kernels.measurements import KernelMeasurements
from tvm_ext.compilation.pipeline import fitter_of
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Asked, Fitter
from tvm_ext.fitting.methods import fit_methods
from tvm_ext.fitting.next_try import Try


def try_job(one: bytes, options: bytes, platform: bytes, measurements: bytes, module: bytes) -> bytes:
    """Return the outcome of a try as JSON.

    options: with the limits of memories. measurements: costs of kernels. module: in the method's quantization.
    """
    asked, chosen, fitter = _read(one, options, platform, measurements, module)
    return fitter.outcome(asked, chosen, iter(())).to_json().encode()


def _read(
    one: bytes, options: bytes, platform: bytes, measurements: bytes, module: bytes
) -> tuple[Asked, BuildOptions, Fitter]:
    """Parse the arguments of a job to a try with its method, the options, and the fitter of the model."""
    values = json.loads(one)
    values["less_bytes"] = tuple((memory, num_bytes) for memory, num_bytes in values["less_bytes"])
    asked, chosen = Try(**values), BuildOptions.from_json(options.decode())
    method = next(method for method in fit_methods(chosen) if method.name == asked.method)
    return (method, asked), chosen, _known_model(replace(chosen, ram=None).to_json(), platform, measurements, module)


@lru_cache(maxsize=2)
def _known_model(options: str, platform: bytes, measurements: bytes, module: bytes) -> Fitter:
    """Return the fitter of a model. The cache keeps two, for the float and the int8 form of the same model."""
    loaded, chosen = tvm.ir.load_json(module.decode()), BuildOptions.from_json(options)
    known = KernelMeasurements.from_text(measurements.decode())
    return fitter_of(lambda _: loaded, Platform.from_json(platform.decode()), chosen, measurements=known)
