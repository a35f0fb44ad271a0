"""Plan each region inside `tvm.compile`, and compile its C and its entry function to an object file.

Regions do not depend on each other. While compilers work on some regions, the next regions are planned, also on compile
services if there are any.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import compile_region
from codegen_c.backend.byoc import CODEGEN
from codegen_c.c_text.text import block
from codegen_c.emit.banner import Origin
from codegen_c.program.interface import Interface
from tvm_ext.core.decisions.composites import Symbol
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform
from tvm_ext.core.processes.at_once import at_once
from tvm_ext.core.toolchain import compile_objects

Submit = Callable[[str, tuple[bytes, ...]], Future[bytes]]
"""Submits the call of `package.module.function` with its inputs, and returns a future of its result."""
Texts = Mapping[str, str]
"""Text of the C files of a region, by file name."""

_ENTRY = "tvm_ext_entry.c"
_SUBMIT = ContextVar[Submit | None]("_SUBMIT", default=None)


def codegen_options(platform: Platform, options: BuildOptions) -> dict[str, dict[str, str]]:
    """Return the `target_options` of RunCodegen, which tell `relax.ext.tvm_ext` the platform and the options."""
    chosen = {"optimize": options.optimize, "io": options.io, "ram": options.limit_bytes(platform)}
    chosen |= {"least_scratch": options.least_scratch, "least_flash": options.least_flash}
    return {CODEGEN: {"platform": platform.to_json(), "options": json.dumps(chosen)}}


@contextmanager
def planning_by(submit: Submit | None) -> Generator[None]:
    """Plan the regions that are compiled in this context on compile services too; with None, only in this process."""
    before = _SUBMIT.set(submit)
    try:
        yield
    finally:
        _SUBMIT.reset(before)


@tvm_ffi.register_global_func(f"relax.ext.{CODEGEN}", override=True)
def compile_for_tvm(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constant_names: Mapping[Any, str]
) -> list[tvm.runtime.Module]:
    """Return one object file for each region function, compiled for the host, with the symbols that TVM's VM calls.

    functions: region functions with a `Symbol`. options: as `codegen_options` returns them. constant_names is unused,
    because constants stay in the C text.
    """
    platform, chosen = str(options["platform"]), str(options["options"])
    symbols = [Symbol.read(region).name for region in functions]
    with at_once(None) as threads:
        planned = zip(symbols, _planned(functions, platform, chosen), strict=True)
        objects = [threads.submit(_object, symbol, texts) for symbol, texts in planned]
        return [one.result() for one in objects]


def _planned(functions: Sequence[relax.Function], platform: str, options: str) -> Iterator[Texts]:
    """Yield the C of each region, in order.

    A region that no service has begun, or on which a service failed, is planned in this process.
    """
    submit, waiting = _SUBMIT.get(), dict[int, Future[bytes]]()
    if submit is not None:
        for index in range(1, len(functions)):
            region = tvm.ir.save_json(functions[index]).encode()
            inputs = (region, platform.encode(), options.encode())
            waiting[index] = submit(f"{__name__}.{region_job.__name__}", inputs)
    for index, region in enumerate(functions):
        ahead = waiting.get(index)
        if ahead is None or ahead.cancel() or ahead.exception() is not None:
            yield region_texts(region, platform, options)
        else:
            yield json.loads(ahead.result())


def region_job(region: bytes, platform: bytes, options: bytes) -> bytes:
    """Return the C of a region as JSON, by file name.

    region: a function as JSON. platform, options: as `codegen_options` returns them.
    """
    return json.dumps(region_texts(tvm.ir.load_json(region.decode()), platform.decode(), options.decode())).encode()


def region_texts(region: relax.Function, platform: str, options: str) -> Texts:
    """Return the C of a region, with an entry file that includes the others. Raises UnsupportedModel, DoesNotFit."""
    board, chosen = Platform.from_json(platform), BuildOptions(**json.loads(options))
    symbol = Symbol.read(region).name
    origin = Origin(generator="tvm_ext", model=symbol, sha256="", platform=board.name)
    compiled = compile_region(region, board, chosen, origin, model=re.sub(r"\W", "_", symbol).lower())
    check_capacity(compiled.program, compiled.plan, board, {board.activations: chosen.limit_bytes(board)})
    sources = compiled.sources()
    return {**sources, _ENTRY: emit_tvm_entry(compiled.interface, compiled.program.name, sorted(sources))}


def _object(symbol: str, texts: Texts) -> tvm.runtime.Module:
    """Compile all sources as one translation unit, so that TVM gets one object with one public symbol."""
    with tempfile.TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        for file_name, text in texts.items():
            (folder / file_name).write_text(text, encoding="utf-8")
        includes = [Path(tvm_ffi.libinfo.find_include_path()), Path(tvm_ffi.libinfo.find_dlpack_include_path())]
        (built,) = compile_objects(
            [folder / _ENTRY],
            folder / "objects",
            HOST_TOOLCHAIN,
            flags=["-fPIC", "-fvisibility=hidden", "-Wno-error"],
            include_dirs=[folder, *includes],
        )
        return tvm.runtime.load_static_library(str(built), [symbol])


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
    """Return C that includes the region's C files and defines `__tvm_ffi_<symbol>`, which TVM calls."""
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
