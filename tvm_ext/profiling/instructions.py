"""Instructions of firmware by address, from its disassembly (Arm and RISC-V): class and registers.

The classes are the ones for which tables of cycles (`core_table.py`) have entries. An unknown mnemonic is of class
`alu`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "alu", "multiply", "multiply_long", "divide", "load", "load_narrow", "load_double", "load_multiple", "store",
    "store_double", "store_multiple", "branch", "loop", "barrier", "float", "float_multiply", "float_mac",
    "float_divide", "float_root", "float_load", "float_load_multiple", "float_store", "float_store_multiple", "double",
    "double_divide", "vector", "vector_multiply", "vector_load", "vector_store",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

LINE = re.compile(r"^ *([0-9a-f]+):\t([a-z]\S*)(?:\t([^@;\n]*))?", re.MULTILINE)
_CONDITIONS = "eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al"
_VECTOR_MULTIPLIES = re.compile(r"v(n?mul|mla|mls|r?mulh|q?r?dmul|q?r?dml|r?mlald|r?mlsld|fma|fms|cmul|cmla)")
_NAMES: tuple[tuple[str, Kind], ...] = (
    ("le|letp|wls|dls|wlstp|dlstp", "loop"),
    ("b|bl|blx|bx|bxns|blxns|cbn?z|tb[bh]", "branch"),
    ("[di][sm]b", "barrier"),
    ("[su]div", "divide"),
    ("[su](mull|mlal)\\w*|umaal|smlsl\\w*", "multiply_long"),
    ("muls?|ml[as]|smul\\w*|smla\\w*|smls\\w*|smm\\w*|smu[as]d\\w*", "multiply"),
    ("ldrd|ldrexd", "load_double"),
    ("ldm\\w*|pop", "load_multiple"),
    ("ldr\\w*|ldrex\\w*|lda\\w*", "load"),
    ("strd", "store_double"),
    ("stm\\w*|push", "store_multiple"),
    ("str\\w*|stl\\w*", "store"),
)
_KINDS: list[tuple[re.Pattern[str], Kind]] = [
    (re.compile(rf"({pattern})({_CONDITIONS})?"), kind) for pattern, kind in _NAMES
]
_FLOAT_NAMES: tuple[tuple[str, Kind], ...] = (
    ("vldm|vpop", "float_load_multiple"),
    ("vstm|vpush", "float_store_multiple"),
    ("vldr", "float_load"),
    ("vstr", "float_store"),
    ("vdiv", "float_divide"),
    ("vsqrt", "float_root"),
    ("vn?(fma|fms|mla|mls)|vfn?m[as]", "float_mac"),
    ("vn?mul", "float_multiply"),
)
_FLOAT_KINDS: list[tuple[re.Pattern[str], Kind]] = [(re.compile(pattern), kind) for pattern, kind in _FLOAT_NAMES]
_REGISTER = re.compile(r"\b(r\d{1,2}|[sdq]\d{1,2}|sl|fp|ip|sp|lr|pc)\b")
_RANGE = re.compile(r"\b([rsdq])(\d+)-[rsdq](\d+)")
_WRITES_NOTHING = re.compile(r"(cmp|cmn|tst|teq|v?str|v?stm|v?push|stm|stl|b|cb|tb|vcmp|vpt|vpst|nop|it)")


@dataclass(frozen=True, kw_only=True)
class FirmwareInstruction:
    """An instruction of firmware.

    registers: number of registers in a list in braces, or in a vector group of RISC-V; 0 without a list or group.
    reads, writes: names of registers.
    """

    kind: Kind
    mnemonic: str
    registers: int = 0
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


def read_disassembly(text: str) -> dict[int, FirmwareInstruction]:
    """Parse the Arm disassembly of `tvm_ext.core.toolchain.disassembly` to instructions by address."""
    return {int(at, 16): instruction(mnemonic, operands or "") for at, mnemonic, operands in LINE.findall(text)}


def instruction(mnemonic: str, operands: str) -> FirmwareInstruction:
    """Return the Arm instruction of a mnemonic and its operands, in objdump's text."""
    kind = _kind(mnemonic.removesuffix(".n").removesuffix(".w"), operands)
    listed = _expanded(operands.partition("{")[2].partition("}")[0]) if "{" in operands else []
    if listed:
        base = set(_REGISTER.findall(operands.partition("{")[0]))
        return FirmwareInstruction(
            kind=kind, mnemonic=mnemonic, registers=len(listed),
            reads=frozenset(base if "load" in kind else base | set(listed)),
            writes=frozenset(listed if "load" in kind else ()),
        )  # fmt: skip
    first, _, rest = operands.partition(",")
    if kind == "load_double":
        second, _, rest = rest.partition(",")
        first = f"{first},{second}"
    written = [] if _WRITES_NOTHING.match(mnemonic) else _REGISTER.findall(first)
    read = _REGISTER.findall(rest if written else operands)
    return FirmwareInstruction(kind=kind, mnemonic=mnemonic, reads=frozenset(read), writes=frozenset(written))


def _kind(mnemonic: str, operands: str) -> Kind:
    if mnemonic.startswith("v"):
        return _vector_kind(mnemonic) if re.search(r"\bq\d", operands) else _float_kind(mnemonic)
    name = mnemonic.partition(".")[0]
    return _first(_KINDS, lambda pattern: pattern.fullmatch(name), otherwise="alu")


def _first(
    kinds: Sequence[tuple[re.Pattern[str], Kind]],
    fits: Callable[[re.Pattern[str]], object],
    *,
    otherwise: Kind,
) -> Kind:
    """Return the class of the first pattern that matches, or `otherwise`."""
    for pattern, kind in kinds:
        if fits(pattern):
            return kind
    return otherwise


def _vector_kind(mnemonic: str) -> Kind:
    """Return the class of an Arm instruction on 128-bit vector registers."""
    if mnemonic.startswith(("vld", "vpop")):
        return "vector_load"
    if mnemonic.startswith(("vst", "vpush")):
        return "vector_store"
    return "vector_multiply" if _VECTOR_MULTIPLIES.match(mnemonic) else "vector"


def _float_kind(mnemonic: str) -> Kind:
    """Return the class of an Arm instruction on floats, or of a vector instruction without a vector register."""
    if mnemonic.startswith(("vpst", "vpt", "vctp", "vpnot")):
        return "vector"
    kind = _first(_FLOAT_KINDS, lambda pattern: pattern.match(mnemonic), otherwise="float")
    is_double = ".f64" in mnemonic and not mnemonic.startswith(("vldr", "vstr", "vmov"))
    if is_double:
        return "double_divide" if kind in ("float_divide", "float_root") else "double"
    return kind


def _expanded(listed: str) -> list[str]:
    """Return the names of the registers in a list, with ranges expanded."""
    ranges = _RANGE.findall(listed)
    spread = [f"{bank}{number}" for bank, begin, end in ranges for number in range(int(begin), int(end) + 1)]
    return spread + _REGISTER.findall(_RANGE.sub("", listed))


_RISCV_NAMES: tuple[tuple[str, Kind], ...] = (
    ("vset\\w+", "alu"),
    ("vl(e|se|[ou]xei|\\dr|m)\\w*", "vector_load"),
    ("vs(e|se|[ou]xei|\\dr|m)\\d*", "vector_store"),
    ("v(w?mul\\w*|smul|w?macc\\w*|n?m(acc|sac|add|sub)|f(w?mul|w?n?m(acc|sac|add|sub)))", "vector_multiply"),
    ("v\\w+", "vector"),
    ("b\\w+|j|jr|jalr?|ret|call|tail|mret|ecall|ebreak", "branch"),
    ("fence", "barrier"),
    ("(div|rem)u?", "divide"),
    ("mul\\w*", "multiply"),
    ("lw|lr", "load"),
    ("l[bh]u?", "load_narrow"),
    ("s[bhw]|sc", "store"),
    ("fl[wd]", "float_load"),
    ("fs[wd]", "float_store"),
    ("fmul", "float_multiply"),
    ("fn?m(add|sub)", "float_mac"),
    ("fdiv", "float_divide"),
    ("fsqrt", "float_root"),
    ("f\\w+", "float"),
)  # fmt: skip
_RISCV_KINDS: list[tuple[re.Pattern[str], Kind]] = [(re.compile(pattern), kind) for pattern, kind in _RISCV_NAMES]
_RISCV_REGISTER = re.compile(r"\b(ra|sp|gp|tp|f?[tsa]\d{1,2}|v\d{1,2})\b")
_TYPE = re.compile(r"\be(\d+),(m|mf)([1248])\b")
_RISCV_WRITES_NOTHING: tuple[Kind, ...] = ("branch", "store", "vector_store", "float_store", "barrier")


def read_riscv(text: str) -> dict[int, FirmwareInstruction]:
    """Parse the RISC-V disassembly of `tvm_ext.core.toolchain.disassembly` to instructions by address.

    The element width and the group size of vector instructions come from the last `vsetvli` before them in the text.
    """
    found: dict[int, FirmwareInstruction] = {}
    width, group = 32, 1.0
    for at, mnemonic, operands in LINE.findall(text):
        chosen = _TYPE.search(operands) if mnemonic.startswith("vset") else None
        if chosen:
            width, group = int(chosen[1]), float(chosen[3]) if chosen[2] == "m" else 1 / float(chosen[3])
        found[int(at, 16)] = riscv_instruction(mnemonic, operands, width=width, group=group)
    return found


def riscv_instruction(mnemonic: str, operands: str, *, width: int = 32, group: float = 1.0) -> FirmwareInstruction:
    """Return the RISC-V instruction of a mnemonic and its operands, in objdump's text.

    width: bits of a vector's elements. group: registers of a vector group (LMUL).
    """
    name = mnemonic.partition(".")[0]
    kind = _riscv_kind(name)
    first, _, rest = operands.partition("#")[0].partition(",")
    written = [] if kind in _RISCV_WRITES_NOTHING else _RISCV_REGISTER.findall(first)
    return FirmwareInstruction(
        kind=kind, mnemonic=mnemonic,
        registers=_registers(mnemonic, width, group) if kind.startswith("vector") else 0,
        # A multiply-accumulate reads the register that it writes.
        reads=frozenset(_RISCV_REGISTER.findall(rest if written and kind != "vector_multiply" else operands)),
        writes=frozenset(written),
    )  # fmt: skip


def _riscv_kind(name: str) -> Kind:
    for pattern, kind in _RISCV_KINDS:
        if pattern.fullmatch(name):
            return kind
    return "alu"


def _registers(mnemonic: str, width: int, group: float) -> int:
    """Return the number of registers in the widest vector group of an instruction."""
    whole = re.match(r"v(?:mv|l|s)(\d)r", mnemonic)
    if whole:
        return int(whole[1])
    element = re.match(r"v[ls]s?e(\d+)", mnemonic)
    if element:
        return max(1, round(int(element[1]) / width * group))
    is_wide = mnemonic.startswith(("vw", "vfw", "vfn", "vnsr", "vnclip"))
    return max(1, round(2 * group if is_wide else group))
