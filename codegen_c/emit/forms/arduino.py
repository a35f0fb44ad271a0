"""Arduino: a library of format 1.5, of which the builder compiles `src/` only.

`src/` holds a file for each source, which includes it. A library cannot set compiler flags; these files set them as
pragmas.
"""

from __future__ import annotations

from codegen_c.emit.forms.form import HOME, NEEDED_FLAGS, Form, PackageParts

_USAGE = """\
arduino-cli lib install --zip-path {name}.zip   # the folder as a zip, or copy it into libraries/
#include <{name}.h>                             // in the sketch
arduino-cli compile --fqbn BOARD SKETCH
"""
SOURCES = "src"


def forwarded(source: str) -> str:
    """Return the text of the file that includes a source after pragmas that set the flags of GCC and clang."""
    asked = ", ".join(f'"{flag[2:]}"' for flag in NEEDED_FLAGS)
    return (
        f"/* {source}, for builds that cannot set compiler flags. */\n"
        "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
        f"#elif defined(__GNUC__)\n#pragma GCC optimize({asked})\n#endif\n"
        f'#include "../{source}"\n'
    )


def _is_public(header: str, parts: PackageParts) -> bool:
    """Return True for headers that sketches may include: the model's, and the header for drivers of accelerators."""
    return header in ("tvm_ext_offload.h", f"{parts.name}.h") or not header.startswith("tvm_ext_")


def _files(parts: PackageParts) -> dict[str, str]:
    properties = {
        "name": parts.name,
        "version": parts.version,
        "author": "tvm_ext",
        "maintainer": "tvm_ext",
        "sentence": f"{parts.description}.",
        "paragraph": "No heap, no operating system.",
        "category": "Data Processing",
        "url": HOME,
        "architectures": "*",
        "includes": f"{parts.name}.h",
    }
    return {
        "library.properties": "".join(f"{key}={value}\n" for key, value in properties.items()),
        **{f"{SOURCES}/{name}": f'#include "../{name}"\n' for name in sorted(parts.headers) if _is_public(name, parts)},
        **{f"{SOURCES}/{name}": forwarded(name) for name in sorted(parts.sources)},
    }


FORM = Form(title="Arduino", usage=_USAGE, files=_files)
