"""Names that both passes and code generation use, and conversion of a model's names to legal C identifiers."""

from __future__ import annotations

import re
from collections.abc import Collection

MOVE = "tvm_ext.move"
"""The Relax operator that copies a tensor to another memory."""
RANGE_QUANTIZE = "tvm_ext.range_quantize"
"""The Relax operator that rounds a tensor to 8 bits of its own range."""
SEARCHED_MEMORY = "auto"
"""Given for the memory of an input or output: the search for memories chooses it."""

MOST_CHARACTERS = 40
"""Length of identifiers that are derived from a model's names."""

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
    """Return the suffix of the names of a column strip of an image, and of the functions that compute it."""
    return f"columns_{columns[0]}_{columns[1]}"


def is_c_keyword(word: str) -> bool:
    """Return True for a keyword of C or C++, or a word that compilers define."""
    return word in _KEYWORDS


def hides_header(model: str) -> bool:
    """Return True where the compiler would read `<model>.h` in place of a header of C or of ours."""
    return model in _C_HEADERS or model.startswith("tvm_ext")


def is_device(model: str) -> bool:
    """Return True where Windows treats `<model>.c` as a device, so that no such file can be created."""
    return model in _DEVICES


def identifier(text: str, *, fallback: str = "x") -> str:
    """Return a legal, lower-case C identifier close to `text`: at most 40 characters, never a keyword of C or C++.

    A longer name loses its start, because the ends tell the layers of a network apart (`.../block_3/conv`). TensorFlow
    Lite joins the names of fused operators by `;`, and such a list is shortened to its first name.
    """
    word = _legal(text)
    word = _legal(text.split(";")[0]) if len(word) > MOST_CHARACTERS else word
    word = _ending(word) or fallback
    word = word if word[0].isalpha() else _ending(f"{fallback}_{word}", fallback)
    return f"{word}_" if word in _KEYWORDS else word


def _legal(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _ending(word: str, begin: str = "") -> str:
    """Return the end of a long word, after `begin`, without a partial first part where the parts are short."""
    if len(word) <= MOST_CHARACTERS:
        return word
    kept = word[len(word) - MOST_CHARACTERS + (len(begin) + 1 if begin else 0) :]
    whole = kept if word[-len(kept) - 1] == "_" else kept.partition("_")[2]
    shortened = whole if len(whole) > len(kept) // 2 else kept.strip("_")
    return f"{begin}_{shortened}" if begin else shortened


def shared_prefix(names: Collection[str]) -> str:
    """Return the path that all names with a path start with, up to its last `/` or `.`, or an empty string.

    The path says nothing about a layer, so names are shown without it. Names without a path are not shortened.
    Shortened names stay unique, and each starts with a letter.
    """
    paths = {name for name in names if re.search(r"[/.]", name.strip("/."))}
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)  # all other names start like these two
    common = next((end for end, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    prefix = first[: max(first.rfind("/", 0, common), first.rfind(".", 0, common)) + 1]
    cut = {name.removeprefix(prefix) for name in paths}
    is_plain = all(name[:1].isalpha() for name in cut) and not cut & ({*names} - paths)
    return prefix if is_plain else ""


def unique(word: str, taken: set[str], separator: str = "_", first: int = 2) -> str:
    """Return `word`, or word_2, word_3, ... where it is taken, and add the result to `taken`.

    separator: stands before the number. first: the number that is tried first.
    """
    candidate, number = word, first
    while candidate in taken:
        candidate, number = f"{word}{separator}{number}", number + 1
    taken.add(candidate)
    return candidate
