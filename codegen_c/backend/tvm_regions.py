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
from hashlib import sha256
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import compile_region
from codegen_c.backend.byoc import CODEGEN
from codegen_c.backend.target_toolchain import toolchain_of
from codegen_c.c_text.text import block
from codegen_c.emit.banner import Origin
from codegen_c.program.interface import Interface
from tvm_ext.core.decisions.composites import Region, RegionBuild, Symbol
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform, Toolchain
from tvm_ext.core.processes.at_once import at_once
from tvm_ext.core.toolchain import compile_objects

Submit = Callable[[str, tuple[bytes, ...]], Future[bytes]]
"""Submits the call of `package.module.function` with its inputs, and returns a future of its result."""
Texts = Mapping[str, str]
"""Text of the C files of a region, by file name."""

_LONGEST = 64
"""Longest name of a region's files, in characters."""
_SHOWN = "/* C of "
"""Begins the text of a module that shows the C of a region."""
_ENTRY = "tvm_ext_entry.c"
_SUBMIT = ContextVar[Submit | None]("_SUBMIT", default=None)


def with_build(mod: tvm.IRModule, platform: Platform, options: BuildOptions, dump: str = "") -> tvm.IRModule:
    """Return the module with the platform and the options on each of our regions, for `compile_for_tvm`.

    dump: folder into which the C of each region is written; empty for none.
    """
    chosen = {"optimize": options.optimize, "io": options.io, "ram": options.limit_bytes(platform)}
    chosen |= {"least_scratch": options.least_scratch, "least_flash": options.least_flash}
    build = RegionBuild(platform=platform.to_json(), options=json.dumps(chosen), dump=dump)
    changed = mod.clone()
    for var, function in mod.functions_items():
        if Region.read(function).codegen == CODEGEN:
            changed.update_func(var, build.write(function))
    return changed


@contextmanager
def planning_by(submit: Submit | None) -> Generator[None]:
    """Plan the regions that are compiled in this context on compile services too; with None, only in this process."""
    before = _SUBMIT.set(submit)
    try:
        yield
    finally:
        _SUBMIT.reset(before)


def compile_for_tvm(functions: Sequence[relax.Function]) -> list[tvm.runtime.Module]:
    """Return one object file for each region, with the symbol that TVM's VM calls. Each imports its C text.

    functions: regions with a `Symbol` and a `RegionBuild`. Objects are compiled for the target of the current scope, or
    for this machine. `inspect_source()` of the first imported module of an object is the C that was compiled.
    """
    toolchain = toolchain_of(tvm.target.Target.current(allow_none=True))
    with at_once(None) as threads:
        objects = []
        for region, texts in zip(functions, _planned(functions), strict=True):
            symbol, dump = Symbol.read(region).name, RegionBuild.read(region).dump
            if dump:
                _dump(texts, Path(dump) / _file_stem(symbol))
            objects.append(threads.submit(_object, symbol, texts, toolchain))
        return [one.result() for one in objects]


def _planned(functions: Sequence[relax.Function]) -> Iterator[Texts]:
    """Yield the C of each region, in order.

    A region that no service has begun, or on which a service failed, is planned in this process.
    """
    submit, waiting = _SUBMIT.get(), dict[int, Future[bytes]]()
    if submit is not None:
        for index in range(1, len(functions)):
            region = tvm.ir.save_json(functions[index]).encode()
            waiting[index] = submit(f"{__name__}.{region_job.__name__}", (region,))
    for index, region in enumerate(functions):
        ahead = waiting.get(index)
        if ahead is None or ahead.cancel() or ahead.exception() is not None:
            yield region_texts(region)
        else:
            yield json.loads(ahead.result())


def region_job(region: bytes) -> bytes:
    """Return the C of a region as JSON, by file name. region: a function as JSON."""
    return json.dumps(region_texts(tvm.ir.load_json(region.decode()))).encode()


def region_texts(region: relax.Function) -> Texts:
    """Return the C of a region, with an entry file that includes the others. Raises UnsupportedModel, DoesNotFit."""
    build = RegionBuild.read(region)
    board, chosen = Platform.from_json(build.platform), BuildOptions(**json.loads(build.options))
    symbol = Symbol.read(region).name
    origin = Origin(generator="tvm_ext", model=symbol, sha256="", platform=board.name)
    compiled = compile_region(region, board, chosen, origin, model=_file_stem(symbol))
    check_capacity(compiled.program, compiled.plan, board, {board.activations: chosen.limit_bytes(board)})
    sources = compiled.sources()
    return {**sources, _ENTRY: emit_tvm_entry(compiled.interface, compiled.program.name, sorted(sources))}


def _file_stem(symbol: str) -> str:
    """Return the name of a region's files and C functions. TVM's patterns make symbols longer than a file name."""
    name = re.sub(r"\W", "_", symbol).lower()
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}_{sha256(symbol.encode()).hexdigest()[:8]}"


def _object(symbol: str, texts: Texts, toolchain: Toolchain) -> tvm.runtime.Module:
    """Compile all sources as one translation unit, so that TVM gets one object with one public symbol."""
    with tempfile.TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        _write(texts, folder)
        includes = [Path(tvm_ffi.libinfo.find_include_path()), Path(tvm_ffi.libinfo.find_dlpack_include_path())]
        (built,) = compile_objects(
            [folder / _ENTRY],
            folder / "objects",
            toolchain,
            flags=["-fPIC", "-fvisibility=hidden", "-Wno-error"],
            include_dirs=[folder, *includes],
        )
        library = tvm.runtime.load_static_library(str(built), [symbol])
    library.import_module(_source(symbol, texts))
    return library


def _dump(texts: Texts, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(texts, folder)
    except OSError as error:
        raise BadOptions(f"dump: {folder} cannot be written: {error.strerror}. Name another folder.") from None


def _write(texts: Texts, folder: Path) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _source(symbol: str, texts: Texts) -> tvm.runtime.Module:
    """Return a module that only shows C. TVM compiles modules of C when it exports, so all of it is inside `#if 0`."""
    shown = [f"/* ==== {name} ==== */\n{text}" for name, text in sorted(texts.items())]
    code = "\n".join(
        [f"{_SHOWN}{symbol}. It is compiled already; here it is only shown. */", "#if 0", *shown, "#endif", ""]
    )
    return tvm_ffi.get_global_func("runtime.CSourceModuleCreate")(code, "c", [], [])


def region_sources(executable: tvm.runtime.Executable) -> dict[str, str]:
    """Return the C of each region in a result of `tvm.compile`, by the name of its function; empty without regions.

    A library that was exported and loaded again no longer contains the C.
    """
    found: dict[str, str] = {}
    waiting = [executable.mod]
    while waiting:
        module = waiting.pop()
        waiting.extend(module.imports)
        text = module.inspect_source() if module.kind == "c" else ""
        if text.startswith(_SHOWN):
            found[text.removeprefix(_SHOWN).partition(".")[0]] = text
    return found


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
