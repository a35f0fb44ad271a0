"""Damage to files as rows of bytes."""

from __future__ import annotations

import random

_SPECIAL = tuple(
    bytes.fromhex(text)
    for text in (
        "00 ff 7f 80 00000000 ffffffff ffffff7f 01000000 00000080 0000c07f 0000807f "
        "0000000000000000 ffffffffffffffff ffffffffffffff7f"
    ).split()
)
"""Integers and floats at edges, little-endian."""


def mutate_bytes(data: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """One to four of: flip, overwrite, cut, insert, double, splice with another file."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        way = rng.choice((_flip, _flip, _overwrite, _overwrite, _truncate, _delete, _insert, _repeat, _number))
        if other and rng.random() < 0.1:
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other)) :]
        elif data:
            data = way(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    at, new = rng.randrange(len(data)), rng.choice(_SPECIAL)
    return data[:at] + new + data[at + len(new) :]


def _number(data: bytes, rng: random.Random) -> bytes:
    """An aligned number of four bytes, a little more or less."""
    at = rng.randrange(max(1, len(data) // 4)) * 4
    value = int.from_bytes(data[at : at + 4], "little") + rng.choice((-1, 1, -4, 4, 256))
    return data[:at] + (value % (1 << 32)).to_bytes(4, "little") + data[at + 4 :]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _delete(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 4, 16, 100)) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((rng.randbytes(rng.randrange(1, 9)), rng.choice(_SPECIAL))) + data[at:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 16, 64))
    return data[:at] + data[at : at + size] * rng.choice((2, 3, 50)) + data[at + size :]
