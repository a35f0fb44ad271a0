"""CMake: the package's CMakeLists.txt, used as a subdirectory, or installed and found by `find_package`."""

from __future__ import annotations

from codegen_c.emit.forms.form import Form

_USAGE = """\
add_subdirectory({name})                      # or, after cmake --install: find_package({name} REQUIRED)
target_link_libraries(firmware PRIVATE {name})
"""

FORM = Form(title="CMake", usage=_USAGE)
