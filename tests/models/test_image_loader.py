"""The loader of images, on the host: images made here byte by byte, and what is wrong with each that it refuses."""

from __future__ import annotations

import ctypes
import hashlib
import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_ext.building.image import seal
from tvm_ext.core.platform import HOST_TOOLCHAIN
from tvm_ext.core.toolchain import compile_objects, shared_library

OK, MISALIGNED, NONE, VERSION, SIZE, PROCESSOR, HASH = 0, -101, -102, -103, -104, -105, -106
HEADER = struct.Struct("<4s32sIIIIIIIIIIII")
PORT = struct.Struct("<Iif")
RUNTIME = Path(__file__).parents[2] / "codegen_c" / "runtime"
SHIFT = 48
"""Bytes in front of an image in the memory that it is tried in, a multiple of 16 alone."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An image of one port and one function, which lies at its end."""

    magic: bytes = b"TVXI"
    version: int = 1
    processor: int
    alignment: int = 16
    num_ports: int = 1
    num_entries: int = 1
    entry: int = 0
    body: bytes = bytes(range(200))

    def sealed(self) -> bytes:
        tables = HEADER.size + PORT.size + 4
        fields = (self.version, self.processor, self.alignment, 1, 2, 64, 16, 0, 0, self.num_ports, self.num_entries)
        head = HEADER.pack(self.magic, bytes(32), 0, *fields)
        entry = struct.pack("<i", self.entry or tables - (HEADER.size + PORT.size))
        return seal(head + PORT.pack(4, -3, 0.5) + entry + self.body)


class Loader:
    """The loader, compiled for this machine; images lie at multiples of 4096 bytes, `shift` aside."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.tvm_ext_image_check.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.processor = ctypes.c_uint32.in_dll(library, "this_processor").value

    def check(self, image: bytes, *, room: int | None = None, shift: int = 0) -> int:
        memory = ctypes.create_string_buffer(len(image) + 8192)
        begin = -(-ctypes.addressof(memory) // 4096) * 4096 + shift
        ctypes.memmove(begin, image, len(image))
        return self._library.tvm_ext_image_check(begin, len(image) if room is None else room)

    def sha256(self, data: bytes) -> bytes:
        digest = ctypes.create_string_buffer(32)
        self._library.tvm_ext_image_sha256(data, ctypes.c_size_t(len(data)), digest)
        return digest.raw


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("loader")
    (folder / "extra.c").write_text(
        '#include "tvm_ext_image.h"\nconst uint32_t this_processor = TVM_EXT_IMAGE_PROCESSOR;\n'
        + "".join(
            f"float {name}(float);\nvoid many_{name}(const float *x, float *y, int n);\n"
            f"void many_{name}(const float *x, float *y, int n)\n"
            f"{{ for (int i = 0; i < n; i++) y[i] = {name}(x[i]); }}\n"
            for name in MATH
        )
    )
    sources = [RUNTIME / "tvm_ext_image.c", RUNTIME / "tvm_ext_image_math.c", folder / "extra.c"]
    flags = ["-fPIC", "-fno-builtin", "-Wl,-Bsymbolic"]
    objects = compile_objects(sources, folder / "objects", HOST_TOOLCHAIN, flags=flags, include_dirs=[RUNTIME])
    made = shared_library(objects, folder / "libloader.so", HOST_TOOLCHAIN, flags=["-Wl,-Bsymbolic"])
    return ctypes.CDLL(str(made))


@pytest.fixture(scope="module")
def loader(library: ctypes.CDLL) -> Loader:
    return Loader(library)


@pytest.fixture(scope="module")
def good(loader: Loader) -> Made:
    return Made(processor=loader.processor)


def test_the_loader_is_short() -> None:
    assert len((RUNTIME / "tvm_ext_image.c").read_text().splitlines()) <= 150


def test_what_was_made_is_taken(loader: Loader, good: Made) -> None:
    for shift in (0, 16, SHIFT):
        assert loader.check(good.sealed(), shift=shift) == OK
    assert loader.check(good.sealed(), room=1 << 30) == OK
    assert loader.check(replace(good, alignment=4096).sealed()) == OK


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"magic": b"TVXJ"}, NONE),
        ({"version": 0}, VERSION),
        ({"version": 2}, VERSION),
        ({"alignment": 64}, MISALIGNED),
        ({"alignment": 0}, MISALIGNED),
        ({"num_ports": 1000}, SIZE),
        ({"num_entries": 1000}, SIZE),
        ({"num_ports": 0xFFFFFFFF, "num_entries": 0xFFFFFFFF}, SIZE),
        ({"entry": 1 << 20}, SIZE),
        ({"entry": -(1 << 20)}, SIZE),
        ({"entry": -HEADER.size}, SIZE),
    ],
)
def test_what_is_sealed_and_wrong_is_refused(
    changes: dict[str, object], refusal: int, loader: Loader, good: Made
) -> None:
    assert loader.check(replace(good, **changes).sealed(), shift=SHIFT) == refusal


def test_another_processor_is_refused(loader: Loader, good: Made) -> None:
    for bit in range(32):
        other = replace(good, processor=good.processor ^ (1 << bit))
        wanted = OK if other.processor & ~good.processor == 0 and 8 <= bit < 31 else PROCESSOR
        assert loader.check(other.sealed()) == wanted, bit


def test_an_image_does_not_run_over(loader: Loader, good: Made) -> None:
    image = good.sealed()
    for room in (len(image) - 1, HEADER.size):
        assert loader.check(image, room=room) == SIZE
    for room in (HEADER.size - 1, 1, 0):
        assert loader.check(image, room=room) == NONE
    for wrong in (0, HEADER.size - 1, len(image) + 1, 0xFFFFFFFF):
        changed = image[:36] + struct.pack("<I", wrong) + image[40:]
        assert loader.check(changed) == SIZE


def test_a_place_between_is_refused(loader: Loader, good: Made) -> None:
    for shift in range(1, 16):
        assert loader.check(good.sealed(), shift=shift) == MISALIGNED


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_changed_bit_is_refused(data: st.DataObject, loader: Loader, good: Made) -> None:
    image = bytearray(good.sealed())
    bit = data.draw(st.integers(0, 8 * len(image) - 1))
    image[bit // 8] ^= 1 << bit % 8
    refusal = loader.check(bytes(image))
    assert refusal != OK
    if bit >= 8 * HEADER.size or 32 <= bit < 8 * 36:
        assert refusal == HASH


def test_the_hash_is_sha_256(loader: Loader) -> None:
    data = np.random.default_rng(0).bytes(300)
    for length in range(len(data) + 1):
        assert loader.sha256(data[:length]) == hashlib.sha256(data[:length]).digest()


MATH = {
    "expf": (np.exp, (-104.0, 88.7), 1.0),
    "tanhf": (np.tanh, (-12.0, 12.0), 1.5),
    "logf": (np.log, (1e-30, 1e30), 1.0),
    "erff": (None, (-5.0, 5.0), 3.0),
}
"""Functions of its own: what they are, over which range, and how many units in the last place they may be off."""


def exact(name: str, x: np.ndarray) -> np.ndarray:
    function = MATH[name][0]
    wide = x.astype(np.float64)
    return function(wide) if function else np.array([math.erf(value) for value in wide])


@pytest.mark.parametrize("name", MATH)
def test_functions_without_tables_are_close(name: str, library: ctypes.CDLL) -> None:
    _, (low, high), limit = MATH[name]
    rng = np.random.default_rng(1)
    wide = np.exp(rng.uniform(np.log(low), np.log(high), 20_000)) if low > 0 else rng.uniform(low, high, 20_000)
    x = np.concatenate([wide, rng.uniform(max(low, 0.01), 1.3, 20_000)]).astype(np.float32)
    wanted = exact(name, x)
    off = np.abs(applied(library, name, x) - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert off.max() <= limit


def applied(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    getattr(library, f"many_{name}")(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), len(x))
    return y


@pytest.mark.parametrize("name", MATH)
def test_functions_without_tables_know_the_ends(name: str, library: ctypes.CDLL) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1e-40, 3e38, 88.8, -104.5], np.float32)
    with np.errstate(all="ignore"):
        wanted = exact(name, x).astype(np.float32)
    got = applied(library, name, x)
    np.testing.assert_allclose(got, wanted, rtol=3e-7, atol=2e-45)
    assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))
