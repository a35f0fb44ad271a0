"""A target whose firmware is a program that QEMU runs as a process, without a C library and with LLVM's tools alone."""

from __future__ import annotations

from pathlib import Path

TARGET = """\
from codegen_c.targets.instruction_set import InstructionSet, Startup

PROCESS = Startup(
    package="process_target.board", isas=("a64",), emulator="qemu-aarch64", runs="process",
    read_stack_pointer="mov %0, sp", link_flags=("-nostdlib", "-static", "-Wl,-e,reset_handler"), libraries=(),
    headers=("string.h", "math.h"), sources=("linux_calls.h", "library.c"),
)
TARGET = InstructionSet(simd="process", title="the vectors of this test", startups=(PROCESS,))
"""

STARTUP = r"""
#include <stdint.h>
#include "board.h"
#include "semihosting.h"

int main(void);
void start(char *const *stack);
char *const *process_arguments;
uint32_t stack_limit[BOARD_STACK_BYTES / 4u] __attribute__((aligned(16)));

__attribute__((naked, used)) void reset_handler(void)
{
    __asm__ volatile("add x0, sp, #8\n"
                     "adrp x1, stack_limit\n"
                     "add x1, x1, :lo12:stack_limit\n"
                     "mov x2, #BYTES\n"
                     "add sp, x1, x2\n"
                     "b start\n");
}

__attribute__((used)) void start(char *const *stack)
{
    process_arguments = stack;
    semihosting_exit((uint32_t)main());
}
"""

CALL = r"""
#include <stdint.h>
static inline intptr_t linux_call(intptr_t number, intptr_t a, intptr_t b, intptr_t c, intptr_t d)
{
    register intptr_t x8 __asm__("x8") = number;
    register intptr_t x0 __asm__("x0") = a;
    register intptr_t x1 __asm__("x1") = b;
    register intptr_t x2 __asm__("x2") = c;
    register intptr_t x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#include "linux_calls.h"
"""

STRING = """\
#ifndef OWN_STRING_H
#define OWN_STRING_H
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
size_t strlen(const char *text);
char *strchr(const char *text, int letter);
int strcmp(const char *one, const char *other);
int strncmp(const char *one, const char *other, size_t most);
#endif
"""

LIBRARY = r"""
#include <string.h>
void *memcpy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) { ((volatile char *)to)[i] = ((const char *)from)[i]; }
    return to;
}
void *memmove(void *to, const void *from, size_t bytes)
{
    if ((const char *)to <= (const char *)from) { return memcpy(to, from, bytes); }
    for (size_t i = bytes; i > 0; i--) { ((volatile char *)to)[i - 1] = ((const char *)from)[i - 1]; }
    return to;
}
void *memset(void *to, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) { ((volatile char *)to)[i] = (char)value; }
    return to;
}
size_t strlen(const char *text)
{
    size_t length = 0;
    while (((const volatile char *)text)[length] != 0) { length++; }
    return length;
}
char *strchr(const char *text, int letter)
{
    union { const char *in; char *out; } one = {text};
    while (*one.in != 0 && *one.in != letter) { one.in++; }
    return *one.in == letter ? one.out : 0;
}
int strncmp(const char *one, const char *other, size_t most)
{
    for (size_t i = 0; i < most; i++) {
        if (one[i] != other[i] || one[i] == 0) { return one[i] - other[i]; }
    }
    return 0;
}
int strcmp(const char *one, const char *other)
{
    return strncmp(one, other, (size_t)-1);
}
"""

PLATFORM = """\
name = "process"
description = "A program on Linux."
activations = "ram"
weights = "rom"
[[processors]]
name = "cpu"
isa = "a64"
clock_hz = 1_000_000_000
simd = "process"
fpu = "double"
[[memories]]
name = "ram"
kind = "ram"
capacity_bytes = 0x10_0000
read_bytes_per_cycle = 8
write_bytes_per_cycle = 8
[[memories]]
name = "rom"
kind = "rom"
capacity_bytes = 0x10_0000
read_bytes_per_cycle = 8
write_bytes_per_cycle = 0
[[links]]
source = "cpu"
target = "ram"
bytes_per_cycle = 8
[[links]]
source = "cpu"
target = "rom"
bytes_per_cycle = 8
[toolchain]
prefix = "llvm-"
compiler = "clang-19"
flags = ["--target=aarch64-none-elf"]
[board]
code_memory = "rom"
data_memory = "ram"
stack_bytes = 0x4000
"""


def write_process_target(folder: Path) -> Path:
    """Write the package and its metadata, as an installer leaves them in a folder of sys.path; return the platform."""
    own = {
        "startup.c": STARTUP.replace("BYTES\\n", "0x4000\\n"),
        "semihosting_call.h": CALL,
        "string.h": STRING,
        "math.h": '#pragma once\n#define INFINITY __builtin_inff()\n#define NAN __builtin_nanf("")\n',
        "library.c": LIBRARY,
    }
    for name, text in {
        "process_target/__init__.py": "",
        "process_target/target.py": TARGET,
        "process_target/board/__init__.py": "",
        **{f"process_target/board/{name}": text for name, text in own.items()},
        "process_target-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: process_target\nVersion: 1.0\n",
        "process_target-1.0.dist-info/entry_points.txt": "[tvm_ext.targets]\nprocess = process_target\n",
        "process.toml": PLATFORM,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "process.toml"
