"""Firmware as a module of WebAssembly: wasmtime runs it and counts instructions; node runs it, too."""

from __future__ import annotations

from codegen_c.targets.instruction_set import Startup

WASM = Startup(
    package="codegen_c.targets.wasm",
    isas=("wasm32",),
    emulator="wasmtime",
    emulator_module="codegen_c.targets.wasm.machine",
    emulator_runs="node",
    emulator_script="run.mjs",
    runs="process",
    stack_limit="__stack_low",
    takes_plugins=False,
    link_flags=("-Wl,--no-entry", "-Wl,-z,stack-size=STACK_BYTES"),
    module_suffix=".wasm",
    module_flags=("-Wl,--no-entry", "-Wl,--stack-first", "-Wl,--strip-all", "-Wl,-z,stack-size=STACK_BYTES"),
    module_export="-Wl,--export=NAME",
    read_stack_pointer=".globaltype __stack_pointer, i32\\nglobal.get __stack_pointer\\nlocal.set %0",
)
