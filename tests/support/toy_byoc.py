"""A BYOC back end from outside, `toy`: products of a matrix and a constant one, as C of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.pattern_registry import register_patterns
from tvm.relax.dpl import is_const, is_op, wildcard

from relay_passes.dataflow import array_of, static_shape

_TENSOR = """\
#include <stdint.h>
#include <tvm/ffi/c_api.h>
static float *data(const TVMFFIAny *a)
{
    const char *const held = (const char *)a->v_obj + sizeof(TVMFFIObject);
    return ((const DLTensor *)(a->type_index == kTVMFFITensor ? held : (const char *)a->v_ptr))->data;
}
"""


def register() -> None:
    """Register the code generator and the table of patterns, as an import of the back end's package would."""
    if tvm_ffi.get_global_func("relax.ext.toy", allow_missing=True) is None:
        tvm_ffi.register_global_func("relax.ext.toy", _compiled)
        register_patterns([("toy.dense", is_op("relax.matmul")(wildcard(), is_const()))])


def _compiled(
    functions: Sequence[relax.Function], _options: Mapping[str, Any], _constant_names: Mapping[Any, str]
) -> list[tvm.runtime.Module]:
    return [_module(str(function.attrs["global_symbol"]), function) for function in functions]


def _bindings(function: relax.Function) -> list[relax.VarBinding]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def _module(symbol: str, function: relax.Function) -> tvm.runtime.Module:
    """One product: merging does not join those with something else between them."""
    (dense,) = [b.value for b in _bindings(function) if isinstance(b.value, relax.Function)]
    (product,) = [b.value for b in _bindings(dense) if isinstance(b.value, relax.Call)]
    weights = array_of(product.args[1])
    assert weights is not None
    rows, (inner, columns) = static_shape(product)[0], weights.shape
    code = f"""{_TENSOR}
static const float weights[] = {{{", ".join(f"{value.item().hex()}f" for value in weights.ravel())}}};
__attribute__((visibility("default")))
int32_t __tvm_ffi_{symbol}(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result)
{{
    for (int r = 0; r < {rows}; ++r) {{
        for (int c = 0; c < {columns}; ++c) {{
            float sum = 0.0f;
            for (int k = 0; k < {inner}; ++k) {{
                sum += data(args)[r * {inner} + k] * weights[k * {columns} + c];
            }}
            data(args + 1)[r * {columns} + c] = sum;
        }}
    }}
    return 0;
}}
"""
    with tempfile.TemporaryDirectory() as name:
        source, built = Path(name) / "toy.c", Path(name) / "toy.o"
        source.write_text(code, encoding="utf-8")
        folders = [tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()]
        include = [f"-I{folder}" for folder in folders]
        subprocess.run(["gcc", "-std=c11", "-O1", "-fPIC", "-c", source, "-o", built, *include], check=True)
        return tvm.runtime.load_static_library(str(built), [symbol])
