"""CMSIS-Pack: a package description of schema 1.7, with one component of the sources and the header.

A component cannot set compiler flags; it lists the files of `src/`, which set them as pragmas.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from codegen_c.emit.forms.arduino import SOURCES
from codegen_c.emit.forms.form import HOME, Form, PackageParts

_USAGE = """\
cpackget add {name}/tvm_ext.{name}.pdsc
- component: tvm_ext::Machine Learning:Model:{name}     # in the csolution project, a pack tvm_ext::{name} beside it
cbuild SOLUTION.csolution.yml
"""
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


def _files(parts: PackageParts) -> dict[str, str]:
    package = Element("package", {
        "schemaVersion": "1.7.7", "xmlns:xs": _INSTANCE, "xs:noNamespaceSchemaLocation": "PACK.xsd",
    })  # fmt: skip
    for tag, text in {
        "vendor": "tvm_ext", "name": parts.name, "description": parts.description, "url": HOME,
    }.items():  # fmt: skip
        SubElement(package, tag).text = text
    releases = SubElement(package, "releases")
    SubElement(releases, "release", version=parts.version).text = parts.description
    components = SubElement(package, "components")
    component = SubElement(
        components, "component", Cclass="Machine Learning", Cgroup="Model", Csub=parts.name, Cversion=parts.version
    )
    SubElement(component, "description").text = parts.description
    files = SubElement(component, "files")
    SubElement(files, "file", category="header", name=f"{parts.name}.h")
    for name in sorted(parts.sources):
        SubElement(files, "file", category="sourceC", name=f"{SOURCES}/{name}")
    indent(package)
    text = tostring(package, encoding="unicode")
    return {f"tvm_ext.{parts.name}.pdsc": f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'}


FORM = Form(title="CMSIS-Pack", usage=_USAGE, files=_files)
