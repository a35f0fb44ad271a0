"""A relocatable image of a model: linked without fixed addresses, sealed by a hash, run from two addresses."""

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
# Bytes of the header in tvm_ext_image.h: a magic number, then the SHA-256 of all bytes after the hash, which begin with
# the size of the image.
_HASH = slice(4, 36)
_SIZE = slice(36, 40)
_NOT_OF_LIBM = re.compile(r"__\w+|mem(cpy|set|move|cmp)")
_NUM_PLACES = 2


@dataclass(frozen=True, kw_only=True)
class Image:
    """Relocatable image in a package. elf: firmware that runs the image from an address on its command line."""

    file: Path
    elf: Path
    num_bytes: int
    sha256: str

    def to_json(self, runs: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Return the entry of the report. runs: results of `run_image`; None if the image was not run."""
        return {
            "file": self.file.name,
            "elf": self.elf.name,
            "num_bytes": self.num_bytes,
            "sha256": self.sha256,
            "alignment": ALIGNMENT_BYTES,
            "runs": None if runs is None else [dict(run) for run in runs],
        }


def make_image(folder: Path, compiled: Compiled, options: BuildOptions, built: Path) -> Image:
    """Compile the library's sources to a sealed relocatable image, and compile the firmware that loads the image.

    built: a folder for objects.

    Raises UnsupportedModel for functions of libm that cannot be relocated, MissingTool, BuildFailed, DoesNotFit.
    """
    platform, model = compiled.platform, compiled.interface.model
    toolchain, own = platform.toolchain_of(platform.processor), folder / FOLDER
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
    """Return a linked image with its size and hash filled in."""
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
    """Run an image from two addresses; return the measurements of each run, and a sentence for each wrong run.

    library: outputs of the package's library on the same board. Raises as `run_qemu` does, and DoesNotFit.
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
            problems.append(
                f"image at address {address:#x}: outputs differ from the library's by {same.max_abs_error:g}"
            )
    return runs, problems


def places(image: Image, platform: Platform) -> list[tuple[Memory, int]]:
    """Return two addresses for an image beside its firmware, if possible in code memory and in a memory for data.

    An image of position-independent code has to give the same outputs at both. Raises DoesNotFit.
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
    # The lowest address of each memory comes first, so that the two addresses are in two memories if possible.
    addresses = [*low, *high][:_NUM_PLACES]
    if len(addresses) < _NUM_PLACES:
        raise DoesNotFit(
            f"{image.file.name}: {image.num_bytes} B do not fit at {_NUM_PLACES} addresses beside the firmware that "
            f"runs the image on {platform.name}. --verify host makes the image without running it."
        )
    return addresses


def _linked(objects: Sequence[Path], elf: Path, compiled: Compiled, *, script: Path) -> Path:
    """Link the image. Raises UnsupportedModel if functions of the C library in it are bound to addresses."""
    toolchain = compiled.platform.toolchain_of(compiled.platform.processor)
    try:
        return link_elf(objects, elf, toolchain, script=script, flags=LINK_FLAGS)
    except BuildFailed as error:
        wanted = undefined_symbols(objects, toolchain)
        names = sorted(name for name in wanted if not _NOT_OF_LIBM.fullmatch(name))
        if "an image" not in str(error) or not names:
            raise
        raise UnsupportedModel(
            f"relocatable_image: the model calls {', '.join(names)} of the C library, which use variables or tables "
            "at fixed addresses and cannot be relocated. Compile the model without relocatable_image, or to int8."
        ) from None
