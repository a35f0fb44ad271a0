"""Zephyr: a module, made of zephyr/module.yml; its Kconfig symbol, on by default, builds its sources.

Kernels call libm, which Zephyr's minimal C library lacks.
"""

from __future__ import annotations

from codegen_c.c_text.text import block
from codegen_c.emit.forms.form import NEEDED_FLAGS, Form, PackageParts

_USAGE = """\
list(APPEND ZEPHYR_EXTRA_MODULES ${CMAKE_CURRENT_SOURCE_DIR}/{name})   # in CMakeLists.txt, before find_package(Zephyr)
west build -b BOARD .
"""


def _files(parts: PackageParts) -> dict[str, str]:
    symbol = f"TVM_EXT_{parts.name.upper()}"
    above = "${CMAKE_CURRENT_SOURCE_DIR}/.."
    sources = block([f"{above}/{name}" for name in sorted(parts.sources)])
    body = [
        f"zephyr_library_named({parts.name})",
        f"zephyr_library_sources(\n{sources})",
        f"zephyr_library_compile_options({' '.join(NEEDED_FLAGS)})",
        f"zephyr_include_directories({above})",
    ]
    return {
        "zephyr/module.yml": f"name: {parts.name}\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n",
        "zephyr/CMakeLists.txt": f"if(CONFIG_{symbol})\n{block(body)}\nendif()\n",
        "zephyr/Kconfig": f'config {symbol}\n\tbool "{parts.description}"\n\tdefault y\n\tselect REQUIRES_FULL_LIBC\n',
    }


FORM = Form(title="Zephyr", usage=_USAGE, files=_files)
