"""The C function by which TVM's virtual machine calls a region: tensors in, tensors out, one run between."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.c_text.text import block
from codegen_c.program.interface import Interface

_TENSOR = """\
/* The data of an argument: a tensor object, whose DLTensor follows the object's header, or a DLTensor itself. */
static void *tvm_ext_data(const TVMFFIAny *argument)
{
    const DLTensor *tensor = argument->type_index == kTVMFFITensor
        ? (const DLTensor *)((const char *)argument->v_obj + sizeof(TVMFFIObject))
        : (const DLTensor *)argument->v_ptr;
    return (char *)tensor->data + tensor->byte_offset;
}
"""


def emit_tvm_entry(interface: Interface, symbol: str, sources: Sequence[str]) -> str:
    """One translation unit: the region's C files included, and `__tvm_ffi_<symbol>` of TVM's calling convention."""
    ports = [*interface.inputs, *interface.outputs]
    data = {port.name: f"tvm_ext_data(&args[{index}])" for index, port in enumerate(ports)}
    if interface.io == "caller":
        status = [f"return {interface.run}({', '.join(data[port.name] for port in ports)});"]
    else:
        status = [
            *(f"memcpy({interface.accessor(p)}(), {data[p.name]}, {p.num_bytes}u);" for p in interface.inputs),
            f"const int32_t status = {interface.run}();",
            *(f"memcpy({data[p.name]}, {interface.accessor(p)}(), {p.num_bytes}u);" for p in interface.outputs),
            "return status;",
        ]
    body = ["(void)self;", "(void)result;", f"if (num_args != {len(ports)}) {{", block("return -1;"), "}", *status]
    arguments = "void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result"
    included = [f'#include "{name}"' for name in sources if name.endswith(".c")]
    return "\n".join(
        [
            "#include <string.h>\n#include <tvm/ffi/c_api.h>\n",
            *included,
            "",
            _TENSOR,
            f"TVM_FFI_DLL_EXPORT int32_t __tvm_ffi_{symbol}({arguments})\n{{\n{block(body)}\n}}\n",
        ]
    )
