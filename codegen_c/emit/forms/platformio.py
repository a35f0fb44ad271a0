"""PlatformIO: a library, made of library.json, which lists the sources and so leaves out self-test and firmware."""

from __future__ import annotations

import json

from codegen_c.emit.forms.form import NEEDED_FLAGS, Form, PackageParts

_USAGE = """\
cp -r {name} lib/              # of the project
#include "{name}.h"            // in src/
pio run
"""


def _files(parts: PackageParts) -> dict[str, str]:
    build = {"srcDir": ".", "srcFilter": [f"+<{name}>" for name in sorted(parts.sources)], "flags": [*NEEDED_FLAGS]}
    manifest = {
        "name": parts.name, "version": parts.version, "description": parts.description,
        "headers": [f"{parts.name}.h"], "platforms": ["*"], "frameworks": ["*"], "build": build,
    }  # fmt: skip
    return {"library.json": json.dumps(manifest, indent=2) + "\n"}


FORM = Form(title="PlatformIO", usage=_USAGE, files=_files)
