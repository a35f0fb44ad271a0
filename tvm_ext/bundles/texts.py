"""Files of a bundle: what its models have in common, and of each its sources, tests and trace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from codegen_c.emit.banner import Origin
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.bundle import Bundle, common_pieces, emit_bundle
from codegen_c.emit.bundle_tests import emit_bundle_firmware, emit_bundle_selftest
from codegen_c.emit.common_pieces import kernels_file
from codegen_c.emit.forms.form import PackageParts
from codegen_c.emit.linker_sections import emit_linker_sections
from codegen_c.emit.selftest import emit_selftest, emit_vectors
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Platform
from tvm_ext.package import PLATFORM_FILE
from tvm_ext.report.bundle_report import used_bytes
from tvm_ext.selftest import SelfTest
from tvm_ext.subject import Subject
from tvm_ext.verification.verify import FLOAT_TOLERANCE, tolerance_of


def write_texts(
    folder: Path,
    common: Bundle,
    subjects: Sequence[Subject],
    selftests: Mapping[str, SelfTest],
    platform: Platform,
    *,
    compares: bool,
) -> None:
    """Write all files of C, build files and firmware.

    selftests: of each model. compares: whether they have outputs to compare with.
    """
    origins = {one.model: one.compiled.origin for one in subjects}
    origin = _origin(common, subjects, platform)
    texts, pieces = emit_bundle(common, origin, origins, platform), common_pieces(common, origin, origins, platform)
    for one in subjects:
        texts |= one.compiled.sources()
    units = [name for name in texts if name.endswith(".c")]
    parts = PackageParts.of(common.name, platform.name, [*texts], origin.generator)
    small = [name for name in units if optimize_of(common, name) == "size"]
    names = [one.model for one in subjects]
    vectors = {name: test.stored for name, test in selftests.items()}
    texts |= emit_bundle_selftest(common, vectors, tolerance=FLOAT_TOLERANCE, compares=compares)
    texts |= emit_build_files(common.name, units, platform, "speed", tested=names, otherwise=small, parts=parts)
    texts |= emit_bundle_firmware(common, platform, compares=compares) if platform.board else {}
    texts |= emit_linker_sections(platform, origin)
    texts[PLATFORM_FILE] = json.dumps(json.loads(platform.to_json()), indent=2) + "\n"
    for one in subjects:
        interface, compiled = one.compiled.interface, one.compiled
        drawn = selftests[one.model].drawn
        texts |= emit_vectors(interface, vectors[one.model], drawn)
        texts |= emit_selftest(interface, tolerance=tolerance_of(compiled.program), compares=compares, drawn=drawn)
        del texts[f"{one.model}_selftest_main.c"]
        common_to = {file: [piece.of(one.model) for piece in found] for file, found in pieces.items()}
        texts[f"{one.model}_trace.json"] = compiled.trace(ModelOrigin.read(one.mod).nodes, common_to)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def optimize_of(common: Bundle, source: str) -> Optimize:
    """Aim that a file is compiled for: its model's, or that of the models that share its functions."""
    if source == kernels_file(common.name, "size"):
        return "size"
    stem = source.removesuffix(".c")
    owner = next((one for one in common.members if stem == one.model or stem.startswith(f"{one.model}_")), None)
    return owner.optimize if owner else "speed"


def _origin(common: Bundle, subjects: Sequence[Subject], platform: Platform) -> Origin:
    """Origin for the banners of common files: the models' files, and a hash of their hashes."""
    digests = " ".join(one.compiled.origin.sha256 for one in subjects)
    return Origin(
        generator=subjects[0].compiled.origin.generator,
        model=", ".join(dict.fromkeys(one.compiled.origin.model for one in subjects)),
        sha256=hashlib.sha256(digests.encode()).hexdigest(), platform=platform.name,
        memories=tuple(used_bytes(common, platform).items()),
    )  # fmt: skip
