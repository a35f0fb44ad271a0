"""Files of a package -> the changes of one thing that can be made in its C, by kind, drawn by a seed.

A change is one number, operator or constant of the text: a weight, the offset of a tensor in an arena, the end of a
loop, a shift, a multiplier, a zero point, a bound of a clamp, a stride, an index. Public headers, self-tests and
firmware are left alone, so are preprocessor lines, assertions and comments.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from codegen_c.emit.weights import is_weights_file

KINDS = (
    "weight", "multiplier or bias", "tensor offset", "loop bound", "shift", "zero point", "clamp", "stride or padding",
    "extent", "index", "operator",
)  # fmt: skip
_NUMBER = r"(?<![\w.])(-?\d+)(?=u?\b(?!\.))"
_FIELDS = {
    "zero point": r"\.zero_point = ",
    "clamp": r"\.(?:low|high) = ",
    "stride or padding": r"\.(?:(?:row_|column_)?(?:stride|dilation)|top|left|pitch|padding) = ",
    "extent": r"\.(?:rows|columns|channels|runs|length|images|units|count) = ",
    "shift": r"\.\w*shift\w* = ",
}
_ARRAY = re.compile(r"const (\w+) (\w+)\[(\d+)\] = \{(.*?)\n\};", re.DOTALL)
_GAP = re.compile(r"struct \{ uint8_t GAP_(\w+)\[(\d+)\]; (\w+) \w+\[")
_SKIPPED = re.compile(
    r"^\s*#[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/|^_Static_assert[^\n]*|\"[^\"\n]*\"", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class CChange:
    """Characters [begin, end) of a file of a package, and the text that takes their place.

    also: further texts of the same file that are taken away, such as the assertion about an offset.
    """

    kind: str
    file: str
    begin: int
    end: int
    text: str
    also: str = ""

    def applied(self, source: str) -> str:
        changed = source[: self.begin] + self.text + source[self.end :]
        return re.sub(self.also, "", changed) if self.also else changed

    def shown(self, source: str) -> str:
        """The change with what stands about it, on one line."""
        before, after = source[max(0, self.begin - 40) : self.begin], source[self.end : self.end + 30]
        return f"{before}[{source[self.begin : self.end]} -> {self.text}]{after}".replace("\n", " ")


def changes_of(model: str, files: Mapping[str, str], seed: int, per_kind: int) -> list[CChange]:
    """Changes of a package's files by their names, so many of each kind as there are or are asked for."""
    generator = random.Random(f"{seed}:{model}")
    found: dict[str, list[CChange]] = {kind: [] for kind in KINDS}
    for name in sorted(files):
        for change in _of_file(model, name, files[name], generator, per_kind):
            found[change.kind].append(change)
    return [
        change
        for changes in found.values()
        for change in generator.sample(changes, min(per_kind, len(changes)))
    ]  # fmt: skip


def _of_file(model: str, name: str, source: str, generator: random.Random, per_kind: int) -> Iterator[CChange]:
    if is_weights_file(name, model):
        yield from _constants(name, source, generator, 4 * per_kind)
    elif name == f"{model}_memory.h":
        yield from _offsets(name, source)
    elif name.endswith((".c", ".h")) and _is_code(model, name):
        yield from _code(name, source)


def _is_code(model: str, name: str) -> bool:
    left_out = {f"{model}{part}" for part in (".h", "_weights.h", "_memory.c", "_vectors.c", "_vectors.h")}
    return "/" not in name and name not in left_out and "selftest" not in name and "dma" not in name


def _constants(name: str, source: str, generator: random.Random, count: int) -> Iterator[CChange]:
    """Elements of arrays of constants, arrays drawn evenly so that small ones have their share."""
    arrays = [match for match in _ARRAY.finditer(source) if int(match[3]) > 0]
    for _ in range(count if arrays else 0):
        array = generator.choice(arrays)
        elements = [*re.finditer(r"[^\s,][^,\n]*", array[4])]
        position = generator.randrange(len(elements))
        element, at = elements[position], array.start(4)
        begin, end = at + element.start(), at + element.end()
        other = elements[position - 1 if position else min(1, len(elements) - 1)]
        text = _other_constant(element[0], other[0], array[1], generator)
        kind = (
            "weight"
            if array[2].endswith("weights") or array[1] in ("float", "int8_t", "uint8_t")
            else "multiplier or bias"
        )
        if text is not None and text != element[0]:
            yield CChange(kind=kind, file=name, begin=begin, end=end, text=text)


def _other_constant(text: str, neighbour: str, c_type: str, generator: random.Random) -> str | None:
    """The element plus or minus 1, with the other sign, or its neighbour's value; floats by a quarter of it."""
    number = re.fullmatch(r"\(?(-?[\d.]+(?:e-?\d+)?)(f|u|ll|ull)?\)?", text)
    if number is None:
        return None
    how = generator.randrange(4)
    if how == 3:
        return neighbour
    if c_type in ("float", "double"):
        value = float(number[1])
        changed = (-value, value * 1.25, value * 0.75)[how]
        return f"({changed!r}{number[2] or ''})"
    bits = int(re.search(r"\d+", c_type)[0]) if re.search(r"\d+", c_type) else 32
    low, high = (0, 2**bits - 1) if c_type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    value = int(number[1])
    changed = (value + 1, value - 1, -value)[how]
    return f"{changed}{number[2] or ''}" if low < changed <= high else None


def _offsets(name: str, source: str) -> Iterator[CChange]:
    for match in _GAP.finditer(source):
        assertion = rf"_Static_assert\(offsetof\([^;]*\b{match[1]}\) == [^;]*;"
        for step in (-16, 16):
            text = str(int(match[2]) + step)
            if int(text) > 0:
                yield CChange(
                    kind="tensor offset", file=name, begin=match.start(2), end=match.end(2), text=text, also=assertion
                )


def _code(name: str, source: str) -> Iterator[CChange]:
    plain = _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    taken: set[int] = set()

    def number(kind: str, match: re.Match[str], steps: Sequence[int]) -> Iterator[CChange]:
        begin, end = match.span(1)
        if begin in taken:
            return
        taken.add(begin)
        for step in steps:
            yield CChange(kind=kind, file=name, begin=begin, end=end, text=str(int(match[1]) + step))

    for kind, field in _FIELDS.items():
        for match in re.finditer(field + _NUMBER, plain):
            yield from number(kind, match, (1, -1))
    for match in re.finditer(r"for \([^;]*; [^;]*<=? " + _NUMBER, plain):
        yield from number("loop bound", match, (1, -1))
    for match in re.finditer(r"for \([^;=]*= " + _NUMBER, plain):
        yield from number("loop bound", match, (1,))
    for match in re.finditer(r"(?:<<|>>) " + _NUMBER, plain):
        yield from number("shift", match, (1, -1))
    for match in re.finditer(r"\[[^\[\]\n]*?" + _NUMBER + r"[^\[\]\n]*\]", plain):
        if not re.search(r"\w+ \w+$", plain[max(0, match.start() - 30) : match.start()]):  # a declaration
            yield from number("index", match, (1, -1))
    for match in re.finditer(r"(?<=[\w\])]) ([-+*<]) (?=[\w(])", plain):
        other = {"-": "+", "+": "-", "*": "+", "<": "<="}[match[1]]
        yield CChange(kind="operator", file=name, begin=match.start(1), end=match.end(1), text=other)
    for match in re.finditer(r"\w+\([^()\n]*?, (\d+)(?=, \d+\);)|\w+\([^()\n]*?, \d+, (\d+)(?=\);)", plain):
        group = 1 if match[1] else 2
        if match.start(group) not in taken:
            taken.add(match.start(group))
            for step in (1, -1):
                yield CChange(
                    kind="loop bound", file=name, begin=match.start(group), end=match.end(group),
                    text=str(int(match[group]) + step),
                )  # fmt: skip
