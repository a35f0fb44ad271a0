"""Fit constants into a flash budget: each try gives more layers 4-bit weights, until the constants fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import tvm

from codegen_c.backend.build import Compiled
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import BuildOptions, Quantize

MOST_TRIES = 7
"""Limit of tries. The bytes to save more than double with each, so seven reach any sensible budget."""


@dataclass(frozen=True, kw_only=True)
class FlashTry:
    """A compiled model, the module with the same results (for verification), and the quantization of that module."""

    module: tvm.IRModule
    compiled: Compiled
    quantize: Quantize


def within_flash(compiled: Callable[[BuildOptions, int], FlashTry], options: BuildOptions) -> FlashTry:
    """Return the first try whose constants fit into `options.flash`, or the first try if there is no limit.

    compiled: compiles a try; its second argument is the bytes to save by 4-bit weights in addition to
    `options.weights`. Pre-transformed weights are given up first; then a float model is quantized if options allow it.
    Raises DoesNotFit.
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
    """Return the options and the first try, without bytes to save.

    If a memory does not hold the constants, it is compiled again without pre-transformed weights. Raises DoesNotFit.
    """
    try:
        return options, compiled(options, 0)
    except DoesNotFit as error:
        is_arena = error.nearest_bytes is not None
        if is_arena or options.least_flash or options.optimize == "size":
            raise
    options = replace(options, least_flash=True)
    return options, compiled(options, 0)


def exceeds_flash(compiled: Compiled, options: BuildOptions) -> DoesNotFit:
    """Return the error for constants that exceed the flash budget."""
    return DoesNotFit(
        f"{compiled.program.name}: its constants take {compiled.program.weights_bytes} B, and flash = {options.flash}, "
        "which counts weights and tables, without code. "
        "For a float model, quantize = 'int8' or 'auto' with calibration data gives 8-bit weights, and 4-bit weights "
        "if 8 bits are not enough; for a quantized model, weights = 'mixed' packs weights that 4 bits can hold. "
        "Otherwise raise the limit, or change the model."
    )
