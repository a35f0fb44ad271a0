"""ESP-IDF: a component, made of idf_component.yml and the lines by which the package's CMakeLists.txt registers it.

ESP-IDF reads a component's CMakeLists.txt twice; the first time it runs as a script, which may define no target.
"""

from __future__ import annotations

from codegen_c.c_text.text import block
from codegen_c.emit.forms.form import NEEDED_FLAGS, Form, PackageParts

_USAGE = """\
cp -r {name} components/
idf_component_register(SRCS "main.c" REQUIRES {name})   # in main/CMakeLists.txt
idf.py build
"""


def _files(parts: PackageParts) -> dict[str, str]:
    return {"idf_component.yml": f'version: "{parts.version}"\ndescription: "{parts.description}"\n'}


def _in_cmake(parts: PackageParts) -> str:
    sources = block([f'"{name}"' for name in sorted(parts.sources)])
    register = f'idf_component_register(\n    SRCS\n{block([sources])}\n    INCLUDE_DIRS ".")'
    flags = f"target_compile_options(${{COMPONENT_LIB}} PRIVATE {' '.join(NEEDED_FLAGS)})"
    return f"if(ESP_PLATFORM)\n{block([register, flags, 'return()'])}\nendif()\n"


FORM = Form(title="ESP-IDF", usage=_USAGE, files=_files, in_cmake=_in_cmake)
