"""Files of arrays made to break their reader, as inputs of a run and as calibration data: each a BadInput."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tvm_ext.core.errors import BadInput
from tvm_ext.core.files import arrays
from tvm_ext.core.files.arrays import holds_arrays, read_arrays, write_arrays

GOOD = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "labels": np.arange(3)}


def archive(**members: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **members)
    return buffer.getvalue()


def header(shape: str = "(3, 4)", descr: str = "'<f4'", body: int = 48, *, text: str = "", version: int = 1) -> bytes:
    """An array as it lies in an archive, its header as given."""
    literal = (text or f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}").encode()
    length = struct.pack("<H" if version == 1 else "<I", len(literal))
    return b"\x93NUMPY" + bytes([version, 0]) + length + literal + bytes(body)


def zipped(members: Sequence[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return buffer.getvalue()


def flagged(offset_in_directory: int, offset_in_header: int, value: int) -> bytes:
    """The good archive with a byte of each entry changed, in both places that have it."""
    data = bytearray(archive(**GOOD))
    for mark, offset in ((b"PK\x01\x02", offset_in_directory), (b"PK\x03\x04", offset_in_header)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] = value
            at = data.find(mark, at + 4)
    return bytes(data)


def corrupt(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


UNREADABLE = r"is not an \.npz file that can be read \("
FILES: dict[str, tuple[bytes, str]] = {
    **{f"cut to {n}": (archive(**GOOD)[:n], UNREADABLE) for n in (0, 1, 10, 100, 300, len(archive(**GOOD)) - 1)},
    "without its beginning": (archive(**GOOD)[50:], UNREADABLE),
    "an end alone": (b"PK\x05\x06" + bytes(18), ""),
    "text": (b"hello" * 100, UNREADABLE),
    "one array": (header(), "is a single array, not an .npz file"),
    "objects": (archive(x=np.array([{}], dtype=object)), "'x' is object; give numbers|allow_pickle|read"),
    "strings": (archive(x=np.array(["a"])), "'x' is <U1; give numbers"),
    "fields": (archive(x=np.zeros(3, [("a", "f4")])), "'x' is .*; give numbers"),
    "complex numbers": (archive(x=np.zeros(3, np.complex64)), "'x' is complex64; give numbers"),
    "times": (archive(x=np.zeros(3, "M8[s]")), "'x' is datetime64.*; give numbers"),
    "raw bytes": (archive(x=np.zeros(3, "V4")), "'x' is .*V4.*; give numbers"),
    "a huge shape": (zipped([("x.npy", header("(1000000000000, 4)"))]), "and its bytes do not match"),
    "a negative shape": (zipped([("x.npy", header("(-3, -4)"))]), "and its bytes do not match"),
    "a shape that overflows": (zipped([("x.npy", header(f"({2**63}, {2**63})"))]), "its bytes do not match"),
    "a shape of text": (zipped([("x.npy", header("'a'"))]), UNREADABLE),
    "a shape in shapes": (zipped([("x.npy", header("(" * 3000))]), UNREADABLE),
    "a shape of signs": (zipped([("x.npy", header("-" * 5000 + "1"))]), UNREADABLE),
    "a shape of digits": (zipped([("x.npy", header(f"({'9' * 5000},)"))]), UNREADABLE),
    "a type that is none": (zipped([("x.npy", header(descr="'zz'"))]), UNREADABLE),
    "a huge string": (zipped([("x.npy", header(descr="'|S2147483647'"))]), "give numbers"),
    "a header that is code": (zipped([("x.npy", header(text="__import__('os').abort()"))]), UNREADABLE),
    "a header without end": (zipped([("x.npy", b"\x93NUMPY\x01\x00\xff\xff{")]), UNREADABLE),
    "a huge header": (zipped([("x.npy", header(text=" " * 200000, version=2))]), UNREADABLE),
    "a version to come": (zipped([("x.npy", header(version=9))]), r"version \(9, 0\)|read"),
    "too few bytes": (zipped([("x.npy", header(body=47))]), "and its bytes do not match"),
    "too many bytes": (zipped([("x.npy", header(body=49))]), "and its bytes do not match"),
    "an empty member": (zipped([("x.npy", b"")]), UNREADABLE),
    "many members": (zipped([(f"{n}.npy", b"") for n in range(10001)]), "holds 10001 arrays; the limit is 10000"),
    "encrypted": (flagged(8, 6, 1), "is encrypted"),
    "an unknown compression": (flagged(10, 8, 99), UNREADABLE),
    "a wrong compression": (flagged(10, 8, 14), UNREADABLE),
    "a wrong check sum": (corrupt(archive(**GOOD), 200), UNREADABLE),
    "damaged compression": (corrupt(zipped([("x.npy", header())], zipfile.ZIP_DEFLATED), 60), UNREADABLE),
}


@pytest.mark.parametrize("name", FILES)
def test_hostile_files(name: str, tmp_path: Path) -> None:
    data, message = FILES[name]
    path = tmp_path / "in.npz"
    path.write_bytes(data)
    if name == "an end alone":
        assert read_arrays(path) == {}
        return
    with pytest.raises(BadInput, match=message) as error:
        read_arrays(path)
    assert str(error.value).startswith(str(path)) and len(str(error.value)) < 1000


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(zipped([("x.npy", header()), ("x.npy", header())]))
    with pytest.raises(BadInput, match="holds 'x' twice"):
        read_arrays(tmp_path / "in.npz")


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """Each of 300 files with three bytes changed is read, or refused with BadInput."""
    data, random = archive(**GOOD), np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        spoiled = bytearray(data)
        for at in random.integers(0, len(data), 3):
            spoiled[at] = random.integers(256)
        (tmp_path / "in.npz").write_bytes(spoiled)
        try:
            read_arrays(tmp_path / "in.npz")
        except BadInput:
            refused += 1
    assert refused > 200


def test_what_unpacks_to_more_than_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MOST_BYTES", 1 << 20)
    large = header("(1048576,)", "'|i1'", 1 << 20)
    (tmp_path / "in.npz").write_bytes(zipped([("x.npy", large), ("y.npy", header())], zipfile.ZIP_DEFLATED))
    with pytest.raises(BadInput, match=r"holds \d+ B of arrays; the limit is 1048576 B\. Give fewer samples"):
        read_arrays(tmp_path / "in.npz")
    assert list(read_arrays(tmp_path / "in.npz", {"y", "z"})) == ["y"]


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "a pipe": (lambda path: os.mkfifo(path), "is not a regular file"),
    "a loop of links": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "zeros without end": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "nothing": (lambda path: None, "No such file"),
}


@pytest.mark.parametrize("name", PLACES)
def test_paths_of_no_file(name: str, tmp_path: Path) -> None:
    make, message = PLACES[name]
    make(tmp_path / "in.npz")
    with pytest.raises(BadInput, match=rf"in\.npz: is not an \.npz file that can be read \({message}"):
        read_arrays(tmp_path / "in.npz")
    assert not holds_arrays(tmp_path / "in.npz")
    with pytest.raises(BadInput, match="that can be read"):
        read_arrays(Path("a\0b.npz"))


def test_arrays_come_back(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    every = {**GOOD, "file": np.float32(1), "a/b": np.zeros((0, 3), bool), "日本": np.asfortranarray(np.eye(3))}
    for _ in range(2):
        write_arrays(path, {name: np.asarray(array) for name, array in every.items()})
    back = read_arrays(path)
    assert list(back) == list(every) and holds_arrays(path) and os.listdir(tmp_path) == ["out.npz"]
    for name, array in every.items():
        np.testing.assert_array_equal(back[name], array)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    write_arrays(path, GOOD)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="Object arrays"):
        write_arrays(path, {"x": GOOD["x"], "y": np.array([{}])})
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["out.npz"]
