"""Analyzers run over a package's C, and their findings as values: which tool, which rule, in which file.

In findings and in the list of deviations, the model's name in a file's name is written `<model>`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_ext import Package
from tvm_ext.core.toolchain import compile_flags, find_compiler

MODEL = "net"
"""C prefix of the packages that are looked at."""

TOOLS = ("cppcheck", "clang-tidy", "gcc")
PICOLIBC = "/usr/lib/picolibc/riscv64-unknown-elf/include"
"""Headers of Debian's C library for RISC-V, which clang does not find by itself."""
CHECKS = "-*,bugprone-*,cert-*,clang-analyzer-*,misc-*,performance-*,portability-*"
TIME_LIMIT_S = 600


@dataclass(frozen=True, order=True)
class Finding:
    """A rule that a tool finds broken in a file; once, however often."""

    tool: str
    rule: str
    file: str


def missing_tools() -> list[str]:
    """Tools that the tests of the analyzers need and that are not installed; MISRA's rules are an addon of cppcheck."""
    missing = [tool for tool in ("cppcheck", "clang-tidy") if shutil.which(tool) is None]
    addons = [Path(root) / "cppcheck/addons/misra.py" for root in ("/usr/share", "/usr/lib", "/usr/local/share")]
    addons += sorted(Path("/usr/lib").glob("*/cppcheck/addons/misra.py"))
    return missing if missing or any(path.is_file() for path in addons) else ["cppcheck's addon misra"]


def copied_sources(package: Package, folder: Path) -> Path:
    """The package's C in a folder of its own: tools leave files beside what they read."""
    for path in package.folder.rglob("*.[ch]"):
        target = folder / path.relative_to(package.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return folder


def programs(folder: Path, *, whole: bool) -> list[list[str]]:
    """C files to look at, by the program that they belong to: the library, and what loads and makes an image.

    Of the library model, arenas, states, DMA; with `whole` also weights, vectors, self-test and firmware.
    """
    library = [f"{MODEL}.c", f"{MODEL}_memory.c", f"{MODEL}_state.c", "tvm_ext_dma.c"]
    if whole:
        library += [f"{MODEL}_{part}.c" for part in ("weights", "vectors", "selftest", "selftest_main")]
        library += [f"board/{part}.c" for part in ("firmware", "startup", "dma_count")]
    image = [f"image/{part}.c" for part in (f"{MODEL}_image", "tvm_ext_image", "tvm_ext_image_math", "head", "board")]
    there = [[name for name in names if (folder / name).is_file()] for names in (library, image)]
    return [names for names in there if names]


def cppcheck(folder: Path, sources: Sequence[str], _package: Package) -> set[Finding]:
    """MISRA C:2012 by its number, and cppcheck's own checks; one configuration, that of the compiler in use."""
    text = _output(
        ["cppcheck", "-q", "--enable=style,warning,performance,portability", "--addon=misra", "--std=c11",
         "-D__GNUC__=12", "-U__clang__", "-U__cplusplus", "--suppress=missingIncludeSystem", "-I.", "-Iboard",
         "-Iimage",
         "--template={file}:{line}:{id}", *sources],
        folder,
    )  # fmt: skip
    lines = re.findall(r"^([^:\n]+):\d+:([\w.-]+)$", text, re.MULTILINE)
    return {Finding("cppcheck", rule.removeprefix("misra-c2012-"), _place(file)) for file, rule in lines}


def clang_tidy(folder: Path, sources: Sequence[str], package: Package) -> set[Finding]:
    """Clang's static analyzer and the checks for bugs, with the platform's processor as target."""
    toolchain, flags = package.platform.toolchain, ["-std=c11", "-I.", "-Iboard", "-Iimage"]
    if toolchain.prefix.startswith("riscv"):
        known = [flag for flag in toolchain.flags if not flag.startswith(("-specs", "-misa-spec", "-msmall-data"))]
        flags += ["--target=riscv32-unknown-elf", "-isystem", PICOLIBC, *known]
    elif toolchain.prefix:
        include = _output([*find_compiler(toolchain), "-print-sysroot"], folder).strip() or "/usr/lib/arm-none-eabi"
        flags += ["--target=arm-none-eabi", "-isystem", f"{include}/include", *toolchain.flags]
    else:
        flags += toolchain.flags
    command = ["clang-tidy", "--quiet", f"--checks={CHECKS}", "--header-filter=.*", *sources, "--", *flags]
    text = _output(command, folder)
    lines = re.findall(r"^([^:\n]+):\d+:\d+: (?:warning|error): .*\[([\w.,-]+)\]$", text, re.MULTILINE)
    assert "clang-diagnostic-error" not in text and "Error while processing" not in text, text[-2000:]
    found = {(file, rule) for file, rules in lines for rule in rules.split(",")}
    return {Finding("clang-tidy", rule, _place(file.removeprefix(f"{folder}/"))) for file, rule in found}


def gcc_analyzer(folder: Path, sources: Sequence[str], package: Package) -> set[Finding]:
    """`gcc -fanalyzer` of the platform's compiler, at its optimisation."""
    toolchain = package.platform.toolchain
    head = [
        *find_compiler(toolchain),
        *compile_flags(toolchain, "size"),
        "-fanalyzer",
        "-I.",
        "-Iboard",
        "-Iimage",
        "-c",
    ]
    found: set[Finding] = set()
    for source in sources:
        text = _output([*head, source, "-o", "analyzed.o"], folder)
        assert "error:" not in text, text
        lines = re.findall(r"^([^:\n]+):\d+:\d+: warning: .*\[(?:CWE.*\] \[)?-W([\w-]+)\]$", text, re.MULTILINE)
        found |= {Finding("gcc", rule, _place(file)) for file, rule in lines}
    return found


ANALYZERS: dict[str, Callable[[Path, Sequence[str], Package], set[Finding]]] = {
    "cppcheck": cppcheck,
    "clang-tidy": clang_tidy,
    "gcc": gcc_analyzer,
}


def listed_deviations(path: Path) -> dict[Finding, str]:
    """Rows of the tables of docs/deviations.md, `| tool | rule | where | reason |`, one entry for each file."""
    found: dict[Finding, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 4 or cells[0] not in TOOLS:
            continue
        tool, rule, where, reason = cells
        for file in re.findall(r"`([^`]+)`", where):
            entry = Finding(tool, rule.strip("`"), file)
            assert entry not in found, f"{entry} is listed twice"
            found[entry] = reason
    return found


def _place(file: str) -> str:
    return re.sub(rf"(^|(?<=/)){MODEL}(?=[._])", "<model>", file.removeprefix("./"))


def _output(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S, check=False
    )
    return done.stdout + done.stderr
