"""Instructions of RISC-V by address, from their disassembly: as `instructions.py` has Arm's.

`registers` of a vector instruction is how many registers its widest group has: the length multiplier (LMUL) of the last
`vsetvli` before it in memory, of widening and narrowing ones twice as many.
"""

from __future__ import annotations

import re

from tvm_ext.profiling.instructions import LINE, FirmwareInstruction, Kind

_NAMES: tuple[tuple[str, Kind], ...] = (
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
_KINDS: list[tuple[re.Pattern[str], Kind]] = [(re.compile(pattern), kind) for pattern, kind in _NAMES]
_REGISTER = re.compile(r"\b(ra|sp|gp|tp|f?[tsa]\d{1,2}|v\d{1,2})\b")
_TYPE = re.compile(r"\be(\d+),(m|mf)([1248])\b")
_WRITES_NOTHING: tuple[Kind, ...] = ("branch", "store", "vector_store", "float_store", "barrier")


def read_riscv(text: str) -> dict[int, FirmwareInstruction]:
    """Instructions by address, of text that `tvm_ext.core.toolchain.disassembly` gives."""
    found: dict[int, FirmwareInstruction] = {}
    width, group = 32, 1.0
    for at, mnemonic, operands in LINE.findall(text):
        chosen = _TYPE.search(operands) if mnemonic.startswith("vset") else None
        if chosen:
            width, group = int(chosen[1]), float(chosen[3]) if chosen[2] == "m" else 1 / float(chosen[3])
        found[int(at, 16)] = riscv_instruction(mnemonic, operands, width=width, group=group)
    return found


def riscv_instruction(mnemonic: str, operands: str, *, width: int = 32, group: float = 1.0) -> FirmwareInstruction:
    """An instruction as objdump prints it. width: bits of elements; group: registers of a group of them."""
    name = mnemonic.partition(".")[0]
    kind = _kind(name)
    first, _, rest = operands.partition("#")[0].partition(",")
    written = [] if kind in _WRITES_NOTHING else _REGISTER.findall(first)
    return FirmwareInstruction(
        kind=kind, mnemonic=mnemonic,
        registers=_registers(mnemonic, width, group) if kind.startswith("vector") else 0,
        # Multiplications that add read what they write, as a vector's tail may.
        reads=frozenset(_REGISTER.findall(rest if written and kind != "vector_multiply" else operands)),
        writes=frozenset(written),
    )  # fmt: skip


def _kind(name: str) -> Kind:
    for pattern, kind in _KINDS:
        if pattern.fullmatch(name):
            return kind
    return "alu"


def _registers(mnemonic: str, width: int, group: float) -> int:
    """Registers of the widest group of a vector instruction."""
    whole = re.match(r"v(?:mv|l|s)(\d)r", mnemonic)
    if whole:
        return int(whole[1])
    element = re.match(r"v[ls]s?e(\d+)", mnemonic)
    if element:
        return max(1, round(int(element[1]) / width * group))
    is_wide = mnemonic.startswith(("vw", "vfw", "vfn", "vnsr", "vnclip"))
    return max(1, round(2 * group if is_wide else group))
