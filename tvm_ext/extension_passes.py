"""Passes that other distributions bring, run where the pipeline begins and checked each by itself.

An entry point of the group `tvm_ext.passes` names a pass of TVM, or a function or class without arguments that makes
one. It is handed the module that `load` made, quantized already where it was quantized here: `main` is one dataflow
block, weights are constants, shapes static, variables named after the model's tensors. It runs before our own passes,
which simplify what it leaves; inputs and outputs have to stay. Verification compares the C with the model's own file.
"""

from __future__ import annotations

import tvm
from tvm import relax

from tvm_ext.core.decisions.decision import carried_over
from tvm_ext.core.errors import ExtensionFailed, TvmExtError
from tvm_ext.core.extensions import PASSES, Extension, extensions


def extension_passes() -> list[tvm.transform.Pass]:
    """The passes of installed distributions, by name of their entry points. Raises ExtensionFailed."""
    return [_checked(extension) for extension in extensions(PASSES)]


def _checked(extension: Extension) -> tvm.transform.Pass:
    """The pass of an extension, which raises ExtensionFailed where it fails, or leaves what is no such module."""

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.extension.{extension.name}")
    def checked(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        where = f"pass {extension.said}"
        try:
            value = extension.value
            made = value if isinstance(value, tvm.transform.Pass) else value()
            after = made(mod)
        except TvmExtError:
            raise
        except Exception as error:  # whatever the other distribution's code raises
            raise ExtensionFailed(f"{where}: {type(error).__name__}: {error}. Mend or uninstall it.") from error
        if fault := _fault(after):
            raise ExtensionFailed(f"{where}: leaves no well-formed module: {fault}. Mend or uninstall it.")
        if _signature(after) != _signature(mod):
            raise ExtensionFailed(
                f"{where}: main had {_signature(mod)}, and has {_signature(after)}; inputs and outputs have to stay."
            )
        return carried_over(after, mod)

    return checked


def _fault(after: object) -> str:
    """The reason why a value is no well-formed module; empty where it is one."""
    if not isinstance(after, tvm.IRModule):
        return f"it is of type {type(after).__name__}"
    try:
        relax.analysis.well_formed(after)
    except Exception as error:  # TVM raises what it likes
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    return ""


def _signature(mod: tvm.IRModule) -> str:
    main = mod["main"]
    return f"({', '.join(f'{param.name}: {param.ty}' for param in main.params)}) -> {main.ret_ty}"
