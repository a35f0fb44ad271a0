"""The C prefix of everything generated for a model, from its file's name."""

from __future__ import annotations

import re
import unicodedata

from tvm_ext.core.names import hides_header, is_device

_MAX_LENGTH = 48
# C's words, and C++'s, whose compilers read the public header too.
_RESERVED = (
    "alignas alignof asm auto bool break case char const constexpr continue default do double else enum extern false "
    "float for goto if inline int long main nullptr register restrict return short signed sizeof static "
    "static_assert struct switch thread_local true typedef typeof union unsigned void volatile while "
    "and bitand bitor catch class compl concept delete explicit export friend mutable namespace new not operator or "
    "private protected public requires template this throw try typename using virtual wchar_t xor"
)


def model_name(stem: str) -> str:
    """`MobileNet-V2 (1.0)` -> `mobilenet_v2_1_0`: [a-z][a-z0-9_]*, at most 48 characters, no word or header of C, no
    device of Windows (`con`)."""
    plain = unicodedata.normalize("NFKD", stem.casefold()).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:_MAX_LENGTH].strip("_")
    if not name:
        return "model"
    if not name[0].isalpha() or name in _RESERVED.split() or hides_header(name) or is_device(name):
        return f"model_{name}"[:_MAX_LENGTH].strip("_")
    return name
