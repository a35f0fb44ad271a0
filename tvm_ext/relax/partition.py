"""tvm_ext as a back end of TVM's own partitioning: the functions that TVM's users know from other back ends.

    mod = tvm_ext.partition_for_tvm_ext(mod, "cortex_m4")      our passes choose the regions
    mod = FuseOpsByPattern(get_patterns_with_prefix("tvm_ext."), annotate_codegen=True)(mod)      TVM's patterns do
    mod = relax.transform.RunCodegen()(mod)

`RunCodegen` calls `relax.ext.tvm_ext`, which this module registers. A function that TVM's patterns partitioned goes
through our passes first, for the platform and the options in `RunCodegen({"tvm_ext": {"platform": ..., ...}})`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.pattern_registry import register_patterns
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import PatternCheckContext

from codegen_c.backend.byoc import CODEGEN
from codegen_c.backend.tvm_regions import compile_for_tvm, with_build
from relay_passes.dataflow import build, outputs, substitute
from tvm_ext.compilation.pipeline import refuse_tune
from tvm_ext.compilation.stages import passes
from tvm_ext.core.decisions.composites import Region, RegionBuild, Symbol
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.fitting.methods import MemoryPass
from tvm_ext.frontends.load import load
from tvm_ext.frontends.memory_scopes import refuse_scopes
from tvm_ext.relax.pass_config import options_here

_PATTERNS = {
    2: (
        "nn.conv1d", "nn.conv2d", "nn.conv1d_transpose", "nn.conv2d_transpose", "matmul", "add", "subtract", "multiply",
        "divide", "maximum", "minimum",
    ),
    1: (
        "nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "nn.softmax", "nn.log_softmax", "nn.relu",
        "nn.leakyrelu", "nn.gelu", "nn.silu", "sigmoid", "tanh", "exp", "clip", "mean", "sum", "reshape",
        "permute_dims", "image.resize2d",
    ),
    3: ("nn.layer_norm",),
}  # fmt: skip
"""Operators of the registered patterns, by their number of tensors. `clip` has two numbers in addition."""

_NUMBERS = {"clip": 2, "reshape": 1}
"""Number of further arguments that are no tensors."""
_IS_SMALL = re.compile("float16|bfloat|float[48]")


def _registered() -> None:
    """Register the patterns, as tuples: TVM removes no other patterns with a check, and aborts when Python ends."""
    patterns = [
        (
            f"{CODEGEN}.{name}",
            is_op(f"relax.{name}")(*(wildcard() for _ in range(count + _NUMBERS.get(name, 0)))),
            {},
            _has_no_half_floats,
        )
        for count, names in _PATTERNS.items()
        for name in names
    ]
    register_patterns(patterns)


def _has_no_half_floats(context: PatternCheckContext) -> bool:
    """Return True for an operator on none of the small floats, for which most platforms have no kernels."""
    call = context.matched_expr
    types = [argument.ty for argument in (call, *call.args)]
    return not any(isinstance(ty, relax.TensorType) and _IS_SMALL.match(str(ty.dtype)) for ty in types)


@short_tracebacks
def partition_for_tvm_ext(
    mod: tvm.IRModule, platform: Platform | str, options: BuildOptions | None = None
) -> tvm.IRModule:
    """Return the module with the largest regions that our C can compute as functions for `relax.ext.tvm_ext`.

    TVM computes the rest. `relax.transform.RunCodegen` compiles the regions; platform and options are on each of them.
    `relax_pipeline` does more: it also quantizes, meets a budget of RAM and places operators on several processors.
    Raises BadOptions, BadPlatform, UnsupportedModel.
    """
    board = Platform.load(platform) if isinstance(platform, str) else platform
    chosen = options_here(options)
    refuse_package_options(chosen)
    _refuse_quantize(chosen)
    loaded = load(mod)
    refuse_scopes(loaded)
    return partitioned(loaded, board, chosen, chosen.name or ModelOrigin.read(loaded).name)


def partitioned(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    prefix: str,
    memory_pass: MemoryPass = None,
    dump: str = "",
) -> tvm.IRModule:
    """Return a loaded module whose regions are functions that say for which platform and options they are compiled.

    memory_pass: as `passes` takes it. dump: as `with_build` takes it.
    """
    outlined = tvm.transform.Sequential(passes(platform, options, prefix, memory_pass))(mod)
    return with_build(outlined, platform, options, dump)


@tvm_ffi.register_global_func(f"relax.ext.{CODEGEN}", override=True)
def compile_functions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], _constant_names: Mapping[Any, str]
) -> list[tvm.runtime.Module]:
    """Return one object file for each function. Constants stay in the C text.

    options: `platform` (name, file or JSON; `host` by default) and fields of `BuildOptions`, for functions that do not
    come from our own passes; without fields, the options of the entered `pass_context` are used. Raises
    UnsupportedModel for such a function with an operator that we cannot compile.
    """
    return compile_for_tvm(
        [function if _is_ours(function) else _as_region(function, options) for function in functions]
    )


def _is_ours(function: relax.Function) -> bool:
    return RegionBuild.read(function).platform != ""


def _as_region(function: relax.Function, options: Mapping[str, Any]) -> relax.Function:
    """Return a function that TVM's patterns partitioned as a region of our passes, with the same signature."""
    symbol = Symbol.read(function).name
    given = {str(name): value for name, value in dict(options).items()}
    platform, fields = str(given.pop("platform", "host")), {name: _plain(value) for name, value in given.items()}
    board = Platform.from_json(platform) if platform.lstrip().startswith("{") else Platform.load(platform)
    try:
        chosen = options_here(BuildOptions(**fields) if fields else None)
    except TypeError as error:
        raise BadOptions(f"options of RunCodegen for {CODEGEN}: {error}.") from None
    refuse_package_options(chosen)
    _refuse_quantize(chosen)
    loaded = load(tvm.IRModule({"main": _inlined(function)}))
    refuse_scopes(loaded)
    module = partitioned(loaded, board, chosen, symbol)
    regions = [own for own in module.functions.values() if Region.read(own).codegen == CODEGEN]
    if len(regions) != 1 or Symbol.read(regions[0]).name != symbol:
        raise UnsupportedModel(
            f"{symbol}: our C cannot compute all operators of this function, and a pattern assigned them to {CODEGEN}. "
            "Use tvm_ext.partition_for_tvm_ext, which assigns only operators that can be compiled."
        )
    return regions[0]


def _plain(value: Any) -> Any:
    """Return a value of TVM's options as one of Python."""
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _inlined(function: relax.Function) -> relax.Function:
    """Return a function without local functions: their bindings stand where they were called."""
    local: dict[relax.Var, relax.Function] = {}
    sequence: list[relax.VarBinding] = []
    values: dict[relax.Var, relax.Expr] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            value = substitute(binding.value, values)
            if isinstance(value, relax.Function):
                local[binding.var] = value
            elif isinstance(value, relax.Call) and value.op in local:
                values[binding.var] = _body(local[value.op], value.args, sequence)
            else:
                sequence.append(relax.VarBinding(binding.var, value))
    return build(function.params, sequence, [substitute(result, values) for result in outputs(function)])


def _body(function: relax.Function, arguments: Sequence[relax.Expr], sequence: list[relax.VarBinding]) -> relax.Expr:
    """Append the bindings of a called function to a sequence, and return its result."""
    values: dict[relax.Var, relax.Expr] = dict(zip(function.params, arguments, strict=True))
    for block in function.body.blocks:
        for binding in block.bindings:
            var = relax.DataflowVar(binding.var.name, binding.var.ty)
            sequence.append(relax.VarBinding(var, substitute(binding.value, values)))
            values[binding.var] = var
    results = [substitute(result, values) for result in outputs(function)]
    return results[0] if len(results) == 1 else relax.Tuple(results)


def _refuse_quantize(chosen: BuildOptions) -> None:
    """Raise BadOptions if the options quantize, for which a whole model and samples are needed."""
    if chosen.quantize != "none":
        raise BadOptions(
            f"quantize = {chosen.quantize!r}: partitioning quantizes nothing; use tvm_ext.relax_pipeline, which does, "
            "or give a model that is quantized already."
        )


def refuse_package_options(chosen: BuildOptions) -> None:
    """Raise BadOptions for options that only a package supports."""
    refuse_tune(chosen, "tvm.compile")
    if chosen.pin or chosen.keep or chosen.place_port:
        raise BadOptions(
            "pin, keep and place_port: inside tvm.compile the caller holds inputs and outputs; build a package instead."
        )
    if chosen.context == "caller":
        raise BadOptions(
            "context = 'caller': TVM calls compiled code without an instance; inside tvm.compile use context = "
            "'static', or build a package."
        )
    if chosen.flash is not None:
        raise BadOptions(
            "flash: tvm.compile cannot try several builds to meet it; choose weights = 'int4', or build a package."
        )
    if chosen.new_frames:
        raise BadOptions("new_frames: inside tvm.compile the caller holds the states; build a package instead.")
    if chosen.input or chosen.argmax or chosen.labels or chosen.rename:
        raise BadOptions(
            "input, argmax, labels and rename: inside tvm.compile the module's own inputs and outputs are kept; build "
            "a package instead."
        )
    if chosen.io == "stream":
        raise BadOptions(
            "io = 'stream': TVM hands whole tensors to compiled code; inside tvm.compile use io = 'arena' or 'caller', "
            "or build a package."
        )


_registered()
