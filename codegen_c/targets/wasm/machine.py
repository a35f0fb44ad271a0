"""Run a module of WebAssembly in wasmtime: `python -m codegen_c.targets.wasm.machine PROGRAM WORDS...`.

The module imports two functions: `semihosting`, with the operations of `targets/firmware/semihosting.h` on files of the
working folder, and `instructions`, which returns how much fuel was consumed: about one unit for each executed
instruction. The module has no other access to this machine.
"""

from __future__ import annotations

import sys
from io import FileIO
from pathlib import Path

from wasmtime import Caller, Config, Engine, Func, FuncType, Instance, Memory, Module, Store, ValType

_OPEN, _CLOSE, _PRINT, _WRITE, _READ, _SEEK, _LENGTH, _COMMAND_LINE, _EXIT = (
    0x01, 0x02, 0x04, 0x05, 0x06, 0x0A, 0x0C, 0x15, 0x20,
)  # fmt: skip
_WRITES = 5
_FUEL = (1 << 63) - 1
_FILES = ("in.bin", "out.bin", "commands", "answers")


class _Exit(Exception):
    """The program ended with a status."""


class _Files:
    """Files that a program opened, by handle. It may open the files of firmware alone, in the working folder."""

    def __init__(self) -> None:
        self._open: dict[int, FileIO] = {}

    def open(self, name: str, mode: int) -> int:
        if name not in _FILES:
            return -1
        try:
            file = FileIO(name, "wb" if mode == _WRITES else "rb")
        except OSError:
            return -1
        handle = len(self._open) + 1
        self._open[handle] = file
        return handle

    def close(self, handle: int) -> int:
        self._open[handle].close()
        return 0

    def read(self, handle: int, num_bytes: int) -> bytes:
        parts = bytearray()
        while len(parts) < num_bytes and (more := self._open[handle].read(num_bytes - len(parts))):
            parts += more
        return bytes(parts)

    def write(self, handle: int, data: bytes) -> int:
        view = memoryview(data)
        while view:
            view = view[self._open[handle].write(view) :]
        return 0

    def seek(self, handle: int, place: int) -> int:
        self._open[handle].seek(place)
        return 0

    def length(self, handle: int) -> int:
        file = self._open[handle]
        here = file.tell()
        end = file.seek(0, 2)
        file.seek(here)
        return end


def _words_at(memory: Memory, caller: Caller, place: int, count: int) -> list[int]:
    data = memory.read(caller, place, place + 4 * count)
    return [int.from_bytes(data[4 * i : 4 * i + 4], "little") for i in range(count)]


def _text_at(memory: Memory, caller: Caller, place: int) -> str:
    end = place
    while memory.read(caller, end, end + 1)[0] != 0:
        end += 1
    return memory.read(caller, place, end).decode(errors="replace")


def run(program: bytes, words: list[str]) -> int:
    """Run a module and return its status."""
    config = Config()
    config.consume_fuel = True
    store = Store(Engine(config))
    store.set_fuel(_FUEL)
    files, line = _Files(), " ".join(words)

    def semihosting(caller: Caller, operation: int, place: int) -> int:
        memory = caller["memory"]
        assert isinstance(memory, Memory), "the linker exports the memory"
        place &= 0xFFFFFFFF
        if operation == _PRINT:
            sys.stdout.write(_text_at(memory, caller, place))
            return 0
        block = _words_at(memory, caller, place, 3)
        if operation == _OPEN:
            return files.open(memory.read(caller, block[0], block[0] + block[2]).decode(errors="replace"), block[1])
        if operation == _CLOSE:
            return files.close(block[0])
        if operation == _READ:
            data = files.read(block[0], block[2])
            memory.write(caller, data, block[1])
            return block[2] - len(data)
        if operation == _WRITE:
            return files.write(block[0], bytes(memory.read(caller, block[1], block[1] + block[2])))
        if operation == _SEEK:
            return files.seek(block[0], block[1])
        if operation == _LENGTH:
            return files.length(block[0])
        if operation == _COMMAND_LINE:
            text = line.encode() + b"\0"
            if not words or len(text) > block[1]:
                return -1
            memory.write(caller, text, block[0])
            return 0
        if operation == _EXIT:
            raise _Exit(block[1])
        return -1

    def instructions() -> int:
        return _FUEL - store.get_fuel()

    i32, i64 = ValType.i32(), ValType.i64()
    provided = {
        "semihosting": Func(store, FuncType([i32, i32], [i32]), semihosting, access_caller=True),
        "instructions": Func(store, FuncType([], [i64]), instructions),
    }
    module = Module(store.engine, program)
    instance = Instance(store, module, [provided[one.name or ""] for one in module.imports])
    start = instance.exports(store)["_start"]
    assert isinstance(start, Func), "startup.c exports it"
    try:
        start(store)
    except _Exit as ended:
        return int(ended.args[0])
    return 1


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]).read_bytes(), sys.argv[2:]))
