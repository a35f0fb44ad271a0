"""Names that passes and code generation both know, and names of a model made legal C identifiers."""

from __future__ import annotations

import re

MOVE = "tvm_ext.move"
"""The Relax operator that copies a tensor to another memory."""
RANGE_QUANTIZE = "tvm_ext.range_quantize"
"""The Relax operator that rounds a tensor to 8 bits of its own range."""

_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local bool true
    false asm typeof main alignas alignof class delete export friend mutable namespace new operator private protected
    public template this throw try typename union using virtual catch nullptr constexpr and and_eq bitand bitor compl
    not not_eq or or_eq xor xor_eq char8_t char16_t char32_t wchar_t concept consteval constinit const_cast co_await
    co_return co_yield decltype dynamic_cast explicit noexcept reinterpret_cast requires static_assert static_cast
    thread_local typeid linux unix""".split()
)

_C_HEADERS = frozenset(
    """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype""".split()
)


_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})


def strip_ending(columns: tuple[int, int]) -> str:
    """Suffix in the names of a column strip of an image and of the functions that compute it."""
    return f"columns_{columns[0]}_{columns[1]}"


def is_c_keyword(word: str) -> bool:
    """True for a keyword of C or C++, or a word that compilers define."""
    return word in _KEYWORDS


def hides_header(model: str) -> bool:
    """True where `<model>.h`, where the compiler looks first, would be read in place of C's header or ours."""
    return model in _C_HEADERS or model.startswith("tvm_ext")


def is_device(model: str) -> bool:
    """True where Windows takes `<model>.c` for a device, with any suffix, so that no such file can be made there."""
    return model in _DEVICES


def identifier(text: str, *, fallback: str = "x", keep: str = "") -> str:
    """A legal, lower-case C identifier close to `text`; at most 40 characters, never a keyword of C or C++.

    keep: where `text` ends in this word, it is shortened before it.
    """
    word = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    tail = f"_{keep}" if keep and word.endswith(f"_{keep}") else ""
    word = (word.removesuffix(tail)[: 40 - len(tail)].strip("_") or fallback) + tail
    word = word if word[0].isalpha() else f"{fallback}_{word}"
    return f"{word}_" if word in _KEYWORDS else word


def unique(word: str, taken: set[str]) -> str:
    """`word`, or word_2, word_3 …, whichever is free; the choice is added to `taken`."""
    candidate, number = word, 1
    while candidate in taken:
        number += 1
        candidate = f"{word}_{number}"
    taken.add(candidate)
    return candidate
