"""A model as an image: linked to lie anywhere, sealed by its hash, run by a board's firmware from two addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.emit.image import LINK_FLAGS, LOADER, image_flags
from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned
from tvm_ext.core.errors import BuildFailed, DoesNotFit, UnsupportedModel
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Memory, Platform
from tvm_ext.core.toolchain import compile_objects, link_elf, raw_binary, section_ranges, undefined_symbols
from tvm_ext.execution.board import Placed, board_seconds, run_qemu
from tvm_ext.execution.host_model import library_sources
from tvm_ext.verification.verify import BOARD_TOLERANCE, compare, tolerance_of

FOLDER = "image"
_HASH = slice(4, 36)  # of tvm_ext_image.h: behind the magic, then the bytes that it is the hash of
_SIZE = slice(36, 40)
_NOT_OF_LIBM = re.compile(r"__\w+|mem(cpy|set|move|cmp)")
_NUM_PLACES = 2


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image beside a package's library. elf: firmware that runs it from an address on its command line."""

    file: Path
    elf: Path
    num_bytes: int
    sha256: str

    def to_json(self, runs: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Entry of the report. runs: of each address, where it was compared with the library; None where it was not."""
        return {
            "file": self.file.name,
            "elf": self.elf.name,
            "num_bytes": self.num_bytes,
            "sha256": self.sha256,
            "alignment": ALIGNMENT_BYTES,
            "runs": None if runs is None else [dict(run) for run in runs],
        }


def make_image(folder: Path, compiled: Compiled, options: BuildOptions, built: Path) -> Image:
    """Compile the library's sources to run anywhere, link and seal them; and the firmware that loads them.

    built: a folder for objects.

    Raises UnsupportedModel for functions of libm that cannot lie anywhere, MissingTool, BuildFailed, DoesNotFit.
    """
    platform, model = compiled.platform, compiled.interface.model
    toolchain, own = platform.toolchain, folder / FOLDER
    includes = [folder, own, folder / "board"]
    sources = [*library_sources(folder, model), own / "head.c", own / "tvm_ext_image_math.c"]
    objects = compile_objects(
        sources, built / "image", toolchain, optimize=options.compile_for, flags=image_flags(model, platform),
        include_dirs=includes,
    )  # fmt: skip
    linked = _linked(objects, built / f"{model}_linked.elf", compiled, script=own / "link.ld")
    sealed = seal(raw_binary(linked, built / f"{model}.bin", toolchain, section=".image").read_bytes())
    file = folder / f"{model}.img"
    file.write_bytes(sealed)
    tests = [folder / f"{model}_{part}.c" for part in ("selftest", "vectors")]
    loads = [own / f"{model}_image.c", *(own / name for name in LOADER if name.endswith(".c")), own / "board.c"]
    firmware = compile_objects(
        [*tests, *sorted((folder / "board").glob("*.c")), *loads], built / "loads", toolchain,
        optimize=options.compile_for, include_dirs=includes,
    )  # fmt: skip
    script = folder / "board" / "link.ld"
    elf = link_elf(firmware, folder / f"{model}_image.elf", toolchain, script=script, flags=["-Wl,--wrap=main"])
    return Image(file=file, elf=elf, num_bytes=len(sealed), sha256=sealed[_HASH].hex())


def seal(linked: bytes) -> bytes:
    """A linked image with its size and hash."""
    sealed = bytearray(linked)
    sealed[_SIZE] = len(sealed).to_bytes(4, "little")
    sealed[_HASH] = hashlib.sha256(sealed[_SIZE.start :]).digest()
    return bytes(sealed)


def run_image(
    image: Image,
    compiled: Compiled,
    samples: Sequence[Mapping[str, np.ndarray]],
    library: Sequence[Mapping[str, np.ndarray]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Figures of runs from two addresses, and sentences on what is wrong. library: what it gave on the same board.

    Raises as `run_qemu` does, and DoesNotFit.
    """
    platform, interface, runs, problems = compiled.platform, compiled.interface, list[dict[str, Any]](), list[str]()
    for memory, address in places(image, platform):
        placed = Placed(file=image.file, address=address)
        ran = run_qemu(
            image.elf, platform, interface, samples, placed=placed,
            time_limit_s=board_seconds(compiled.modelled_instructions, len(samples)),
        )  # fmt: skip
        same = compare(ran.outputs, library, tolerance=tolerance_of(compiled.program, BOARD_TOLERANCE))
        runs.append({"memory": memory.name, "address": address, "instructions": ran.instructions, **same.to_json()})
        if not same.passed:
            problems.append(f"image at {address:#x}: outputs differ from the library's by {same.max_abs_error:g}")
    return runs, problems


def places(image: Image, platform: Platform) -> list[tuple[Memory, int]]:
    """Two addresses of an image beside its firmware: in place and in memory that is written to, where both have room.

    Raises DoesNotFit.
    """
    assert platform.board is not None, "images are made for boards"
    taken = section_ranges(image.elf, platform.toolchain)
    low: list[tuple[Memory, int]] = []
    high: list[tuple[Memory, int]] = []
    for memory in sorted(platform.on_machine.memories, key=lambda memory: memory.name != platform.board.code_memory):
        assert memory.address is not None, "a checked platform with a board has addresses"
        stack = platform.board.stack_bytes if memory.name == platform.board.data_memory else 0
        end = memory.address + memory.capacity_bytes - stack
        begin = max([memory.address, *(last for first, last in taken if memory.address <= first < end)])
        begin, last = aligned(begin), (end - image.num_bytes) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        low += [(memory, begin)] if begin <= last else []
        high += [(memory, last)] if begin < last else []
    found = [*low, *high][:_NUM_PLACES]
    if len(found) < _NUM_PLACES:
        raise DoesNotFit(
            f"{image.file.name}: {image.num_bytes} B have no room at {_NUM_PLACES} addresses beside the firmware that "
            f"runs them on {platform.name}. --verify host makes the image without running it."
        )
    return found


def _linked(objects: Sequence[Path], elf: Path, compiled: Compiled, *, script: Path) -> Path:
    """The linked image. Raises UnsupportedModel where the C library's part of it is bound to addresses."""
    toolchain = compiled.platform.toolchain
    try:
        return link_elf(objects, elf, toolchain, script=script, flags=LINK_FLAGS)
    except BuildFailed as error:
        wanted = undefined_symbols(objects, toolchain)
        names = sorted(name for name in wanted if not _NOT_OF_LIBM.fullmatch(name))
        if "an image" not in str(error) or not names:
            raise
        raise UnsupportedModel(
            f"relocatable_image: the model calls {', '.join(names)} of the C library, which keep variables or "
            "addresses of tables and cannot lie anywhere. Compile the model without it, or to int8."
        ) from None
