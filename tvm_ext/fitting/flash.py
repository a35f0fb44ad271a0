"""Constants within a budget: layers get weights of 4 bits, a few more at each try, until they fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import tvm

from codegen_c.backend.build import Compiled
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import BuildOptions, Quantize

MOST_TRIES = 7


@dataclass(frozen=True, kw_only=True)
class FlashTry:
    """A model compiled, the module whose answers it gives, and how that is quantized."""

    module: tvm.IRModule
    compiled: Compiled
    quantize: Quantize


def within_flash(compiled: Callable[[BuildOptions, int], FlashTry], options: BuildOptions) -> FlashTry:
    """The first try whose constants take no more than `options.flash`; the only one where that is None.

    compiled: a try, by bytes that weights of 4 bits have to save beyond those that `options.weights` gives them to.
    Weights that grew for speed are the first to go; then a float model that may be quantized is. Raises DoesNotFit.
    """
    options, found = _first(compiled, options)
    more, most = 0, found.compiled.program.weights_bytes
    for _ in range(MOST_TRIES):
        missing = 0 if options.flash_bytes is None else found.compiled.program.weights_bytes - options.flash_bytes
        if missing <= 0:
            return found
        if found.compiled.program.has_grown_weights:
            options = replace(options, least_flash=True)
        elif found.quantize == "none" and options.quantize == "auto":
            options = replace(options, quantize="int8")
        elif found.quantize == "none" or options.activations == "int16" or more > most:
            break
        else:
            more = 2 * more + missing
        found = compiled(options, more)
    raise exceeds_flash(found.compiled, options)


def _first(compiled: Callable[[BuildOptions, int], FlashTry], options: BuildOptions) -> tuple[BuildOptions, FlashTry]:
    """A try without bytes to save, and its options: where a memory does not hold constants that may grow, without."""
    try:
        return options, compiled(options, 0)
    except DoesNotFit as error:
        is_arena = error.nearest_bytes is not None
        if is_arena or options.least_flash or options.optimize == "size":
            raise
    options = replace(options, least_flash=True)
    return options, compiled(options, 0)


def exceeds_flash(compiled: Compiled, options: BuildOptions) -> DoesNotFit:
    """The error of constants that take more than the budget."""
    return DoesNotFit(
        f"{compiled.program.name}: its constants are {compiled.program.weights_bytes} B, and flash = {options.flash}, "
        "which counts weights and tables, no code. "
        "Of a float model, quantize = 'int8' or 'auto' with calibration data makes weights of 8 bits, and of 4 where "
        "that is not enough; of a quantized one weights = 'mixed' packs what 4 bits hold. Else give more, or change "
        "the model."
    )
