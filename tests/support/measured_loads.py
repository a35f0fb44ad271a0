"""Loads models, each in a process of its own, and says what it took: `python measured_loads.py SPEC.json`.

TVM is imported once; each model has a fork of that process, whose seconds and bytes are counted apart.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

MOST_ADDRESSES = 6 << 30
MOST_SECONDS = 30


def measured(path: str, shapes: dict[str, list[int]] | None) -> dict[str, Any]:
    """Class and text of the error, and the processor seconds and peak bytes of a load."""
    import tvm_ext

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        try:
            tvm_ext.load(path, shapes=shapes)
            found = {"error": "", "text": ""}
        except BaseException as error:
            found = {"error": type(error).__name__, "text": str(error)[:2000]}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    _, _, used = os.wait4(child, 0)
    result = json.loads(data) if data else {"error": "killed", "text": ""}
    return result | {"seconds": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss * 1024}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import tvm_ext.frontends.load  # noqa: F401

    specs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {name: measured(spec["path"], spec["shapes"]) for name, spec in specs.items()}
    sys.stdout.write(json.dumps(found))
