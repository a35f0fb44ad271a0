"""Flags of compilers that a platform file may contain, and reasons for refusing all others.

A platform file may come from anyone, and building for it must never run code of its author. So flags are accepted by
what they do, never because no danger is known. Refused are flags that load code into the compiler, that name programs
or option files, that pass unchecked arguments on, that write files or leave the project, and flags that change
results.

Flags that name folders of the project are used only in the build files of packages. Code that is compiled here also
runs here, in QEMU, and headers of the project are code of the platform's author.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydantic_core import PydanticCustomError

_FOLDER_FLAG = re.compile(r"^(-isystem |--sysroot=)(.*)$", re.DOTALL)
_SPECS_FLAG = re.compile(r"^--?specs=(.*)$", re.DOTALL)
_FOLDER = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")

ALLOWED = {
    "processor and ABI": r"-m[A-Za-z0-9=_.,+-]+",
    "target of clang": r"--target=[a-z0-9_]+(-[a-z0-9_.]+){0,4}",
    "optimization": r"-O[0-3sz]",
    "debug information": r"-g[0-4]?|-gdwarf-[2-5]",
    "code generation": r"-f[a-z][a-z0-9]*(-[a-z0-9]+)*|-falign-(functions|loops|jumps|labels)=[0-9]{1,5}"
    r"|-fvisibility=(default|hidden|internal|protected)|-ffp-contract=off|-fuse-ld=(bfd|gold|lld|mold)"
    r"|-fdebug-types-section|-fstack-reuse=(all|named_vars|none)",
    "warnings": r"-W[a-z][a-z0-9+-]*(=[0-9]+)?",
    "defines": r"-D([A-Z][A-Za-z0-9_]*|__[A-Z][A-Z0-9_]*)(=([0-9]|[A-Z])[A-Za-z0-9_]*)?",
    "specs of the compiler's own": r"--?specs=[a-z0-9][a-z0-9_+-]*\.specs",
    "folders inside the project": r"(-isystem |--sysroot=)[A-Za-z0-9_.+/-]+",
}
"""Kinds of allowed flags, and the pattern of each."""

_ALLOWED_TEXT = (
    "allowed are -m..., --target=..., -O0 to -Oz, -g, -f... that generate code, -W..., -DNAME=VALUE, -specs=NAME.specs "
    "of the compiler's own, and for build files of packages -isystem FOLDER and --sysroot=FOLDER inside the folder "
    "of the platform's file"
)

_REFUSED: tuple[tuple[str, str], ...] = (
    (r"-fplugin|-fpass-plugin|-load|-Xclang|-mllvm|-flto|-fuse-linker-plugin",
     "loads code into the compiler or linker, or passes arguments to them without a check"),
    (r"-B|--prefix|-wrapper|--gcc-toolchain|--gcc-install-dir|-ccc-|-fuse-ld|--ld-path|-resource-dir"
     r"|-f(no-)?integrated",
     "changes which programs the compiler runs"),
    (r"@", "reads options from a file, which cannot be checked"),
    (r"-W[alp],|-Xlinker|-Xassembler|-Xpreprocessor|-z$", "passes arguments to another program without a check"),
    (r"-include|-imacros|-I|-iquote|-idirafter|-iprefix|-iwith|-L|-l|-T|-u|-x|-o$|-M|-d|--param|-save|-print|-v$|-###",
     "chooses files or steps of the build, which the package's own build files do; for headers write -isystem FOLDER"),
    (r"-f(dump|profile|opt-info|callgraph|coverage|branch-prob|auto-profile|module|preprocessed|syntax-only|save"
     r"|record|instrument|xray|sanitize|crash|time-trace|ada|go-|create-|cs-|memory-profile|proc-stat|split-stack)"
     r"|-ftest-coverage|-m(fentry|instrument|record|nop-mcount)",
     "reads or writes files beside the objects, or adds code that the package does not have"),
    (r"-f(fast-math|unsafe-math|associative-math|reciprocal-math|finite-math|no-signed-zeros"
     r"|fp-contract|fp-model|approx-func|no-trapping-math|single-precision-constant|cx-)|-Ofast",
     "may change results"),
    (r"-D(_|[a-z]|[^=]*=[a-z_])",
     "may give another meaning to functions and words of C, which generated code uses; names and values of defines "
     "begin with a capital letter, or values with a digit"),
    (r"-W(no-)?error", "decides which warnings end a build; it is a matter of the tests of a package"),
)  # fmt: skip
"""Patterns of the starts of refused flags, and the reasons."""


def flag_problem(flag: str) -> str | None:
    """Return why a flag is refused, followed by the allowed flags, or None for an allowed flag."""
    folder, specs = _FOLDER_FLAG.match(flag), _SPECS_FLAG.match(flag)
    if folder:
        reason = _folder_problem(folder[2])
    elif flag == "-isystem":
        reason = 'its folder belongs to it: write one text, "-isystem vendor/include"'
    elif specs and not re.fullmatch(ALLOWED["specs of the compiler's own"], flag):
        reason = (
            "specs say which programs the compiler runs, so only those that lie with the compiler are read: a bare "
            "NAME.specs, no path"
        )
    else:
        refused = (reason for form, reason in _REFUSED if re.match(form, flag) and not _is_exact(flag))
        reason = next(refused, None)
        if reason is None and not any(re.fullmatch(form, flag) for form in ALLOWED.values()):
            reason = "is not an allowed flag"
    return f"{reason}; {_ALLOWED_TEXT}" if reason else None


def checked_flag(flag: str) -> str:
    """Return the flag itself, for pydantic. Raises PydanticCustomError for a refused flag."""
    problem = flag_problem(flag)
    if problem:
        raise PydanticCustomError("flag", "{problem}", {"problem": problem})
    return flag


def folder_of(flag: str) -> str | None:
    """Return the folder inside the project that a flag names, or None."""
    found = _FOLDER_FLAG.match(flag)
    return found[2] if found else None


def specs_of(flag: str) -> str | None:
    """Return the name of the specs that a flag requests, or None."""
    found = _SPECS_FLAG.match(flag)
    return found[1] if found else None


def _folder_problem(text: str) -> str | None:
    if PurePosixPath(text).is_absolute() or ".." in PurePosixPath(text).parts:
        return "a folder has to lie inside the project: relative to the platform's file, without .."
    if not _FOLDER.fullmatch(text):
        return "a folder's name has letters, digits and _ . + - alone, parts joined by /"
    return None


def _is_exact(flag: str) -> bool:
    """Return True for a flag that is allowed although refused flags start alike."""
    if re.fullmatch(r"-D__[A-Z][A-Z0-9_]*(=[0-9][A-Za-z0-9_]*)?", flag):  # such as __FPU_PRESENT
        return True
    return flag in ("-ffp-contract=off", "-fno-lto") or re.fullmatch(r"-fuse-ld=(bfd|gold|lld|mold)", flag) is not None
