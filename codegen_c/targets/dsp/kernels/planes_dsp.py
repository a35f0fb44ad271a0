"""Planes of expanded input for depthwise kernels of the DSP extension: four channels of a few rows, as C text.

A plane holds one channel as words of two adjacent columns, each a number of 16 bits; the first word begins with the
first column of padding. `RowTaps` holds the products of a row of taps with such words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.kernels.contract import StoredRows, Target
from codegen_c.kernels.figures import Block
from codegen_c.kernels.shared.four_bits import pack_pairs
from codegen_c.operators.kinds import QConv2d

PLANES = 4
COLUMNS = 2
STRIP_ROWS = range(2, 9)
STRIP_BYTES = 1024
STRIP_BLOCKS: tuple[Block, ...] = ((1,), (2,), (4,), (6,), (8,), (12,), (16,), (24,))


def strip_blocks(operator: QConv2d, target: Target) -> tuple[Block, ...]:
    """Rows of strips that `Plane.of` may be told to take; higher ones take more scratch."""
    return STRIP_BLOCKS


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Expanded input of one channel for a strip of output rows: `rows` by `words` pairs of columns.

    kept: rows at the end that the next strip begins with.
    """

    strip: int
    rows: int
    words: int
    kept: int

    @classmethod
    def of(cls, operator: QConv2d, stored: StoredRows, block: Block = ()) -> Plane:
        """The highest strip whose planes have no more than STRIP_BYTES, and of no more rows than a call computes.

        block: its rows, where they are given.
        """
        window, output = operator.window, operator.output.shape
        spanned = (window.kernel[0] - 1) * window.dilation[0] + 1
        words = ((output[2] - 1) * window.strides[1] + window.kernel[1] + 1) // 2

        def rows(strip: int) -> int:
            return (strip - 1) * window.strides[0] + spanned

        fitting = [n for n in STRIP_ROWS if 4 * PLANES * rows(n) * words <= STRIP_BYTES]
        highest = block[0] if block else max(fitting, default=STRIP_ROWS.start)
        strip = min(highest, output[1], stored.at_once or output[1])
        return cls(strip=strip, rows=rows(strip), words=words, kept=max(0, spanned - window.strides[0]))

    @property
    def size(self) -> int:
        """Words of a plane."""
        return self.rows * self.words


@dataclass(frozen=True, kw_only=True)
class RowTaps:
    """Products of a kernel row of S taps with words of two columns.

    words: taps of each weight word, None for a zero. products[q]: what the sum of output column q adds, as
    (function, input word, weight word).
    """

    words: tuple[tuple[int, int | None], ...]
    products: tuple[tuple[tuple[str, int, int], ...], ...]

    @classmethod
    def of(cls, taps: int, stride: int, columns: int) -> RowTaps:
        """Products for `columns` output columns side by side, the first one's taps beginning with a word."""
        words: list[tuple[int, int | None]] = []
        for q in range(columns):
            odd = q * stride % 2
            words += [pair for s in range(odd, taps - 1, 2) if (pair := (s, s + 1)) not in words]
        products: list[tuple[tuple[str, int, int], ...]] = []
        for q in range(columns):
            first = q * stride
            found: list[tuple[str, int, int]] = []
            s = 0
            while s < taps:
                position, high = divmod(first + s, 2)
                if not high and s + 1 < taps:
                    found.append(("smlad", position, words.index((s, s + 1))))
                    s += 2
                    continue
                if not any(s in pair for pair in words):
                    words.append((s, None))
                word = next(i for i, pair in enumerate(words) if s in pair)
                found.append((_half_product(bool(high), words[word].index(s) == 1), position, word))
                s += 1
            products.append(tuple(found))
        return cls(words=tuple(words), products=tuple(products))


def _half_product(high_input: bool, high_weight: bool) -> str:
    return f"{'high' if high_input else 'low'}_{'high' if high_weight else 'low'}"


def pack(weight: np.ndarray, taps: RowTaps) -> np.ndarray:
    """int8[C, R, S, 1] -> uint32[C, R, words], each word two taps of 16 bits, the first one low."""
    padded = np.concatenate([weight[..., 0], np.zeros((*weight.shape[:2], 1), np.int8)], axis=2)
    last = weight.shape[2]
    first = padded[:, :, [a for a, _ in taps.words]].astype(np.int16).view(np.uint16).astype(np.uint32)
    second = padded[:, :, [last if b is None else b for _, b in taps.words]].astype(np.int16)
    return np.ascontiguousarray(first | second.view(np.uint16).astype(np.uint32) << np.uint32(16))


def nibble_bytes(num_taps: int) -> int:
    """Bytes of a channel's weights of 4 bits."""
    return (num_taps + 1) // 2


def pack_nibbles(weight: np.ndarray) -> np.ndarray:
    """int8[C, R, S, 1] from -8 to 7 -> uint32: channel after channel its taps, two to a byte, the first one low."""
    taps = weight.reshape(len(weight), -1)
    even = np.concatenate([taps, np.zeros((len(taps), taps.shape[1] % 2), np.int8)], axis=1)
    packed = pack_pairs(even[:, 0::2], even[:, 1::2]).ravel()
    return np.append(packed, np.zeros(-packed.size % 4, np.uint8)).view(np.uint32)
