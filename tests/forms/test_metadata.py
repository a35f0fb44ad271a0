"""Metadata of the forms against published schemas, where these can be had, and against their documented rules."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from codegen_c.emit.forms.arduino import forwarded
from codegen_c.emit.forms.form import PackageParts
from codegen_c.emit.forms.registry import cmake_of_forms, emit_forms, forms, usages

_MAIN = re.compile(r"^\s*int\s+main\s*\(", re.MULTILINE)


def test_a_pack_description_by_its_schema(kws: Path) -> None:
    """PACK.xsd of the repository Open-CMSIS-Pack/Open-CMSIS-Pack-Spec, which TVM_EXT_PACK_SCHEMA names."""
    xmlschema, schema = pytest.importorskip("xmlschema"), Path(os.environ.get("TVM_EXT_PACK_SCHEMA", "PACK.xsd"))
    if not schema.is_file():
        pytest.skip("TVM_EXT_PACK_SCHEMA names no file PACK.xsd, which is in no package registry")
    xmlschema.XMLSchema(schema).validate(kws / "tvm_ext.kws.pdsc")


def test_a_platformio_manifest_by_platformio(kws: Path) -> None:
    pytest.importorskip("platformio")
    from platformio.package.manifest.parser import ManifestParserFactory  # type: ignore[import-not-found]
    from platformio.package.manifest.schema import ManifestSchema  # type: ignore[import-not-found]

    data = ManifestSchema().load_manifest(ManifestParserFactory.new_from_file(f"{kws}/library.json").as_dict())
    assert data["name"] == "kws" and data["headers"] == ["kws.h"]
    arduino = ManifestParserFactory.new_from_file(f"{kws}/library.properties").as_dict()
    assert ManifestSchema().load_manifest(arduino)["name"] == "kws"


def test_a_component_manifest_by_espressifs_manager(kws: Path) -> None:
    manager = pytest.importorskip("idf_component_tools.manager")
    assert str(manager.ManifestManager(str(kws), "kws").load().version) == "0.1.0"


def test_a_zephyr_module_by_its_schema(kws: Path) -> None:
    """Keys that the schema in Zephyr's scripts/zephyr_module.py lists, and files that they have to name."""
    module = yaml.safe_load((kws / "zephyr" / "module.yml").read_text())
    assert module == {"name": "kws", "build": {"cmake": "zephyr", "kconfig": "zephyr/Kconfig"}}
    assert (kws / module["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (kws / module["build"]["kconfig"]).is_file()


def test_a_kconfig_file_is_read_by_kconfiglib(kws: Path, tmp_path: Path) -> None:
    kconfiglib = pytest.importorskip("kconfiglib")
    (tmp_path / "Kconfig").write_text(f'config REQUIRES_FULL_LIBC\n\tbool\nsource "{kws}/zephyr/Kconfig"\n')
    symbols = kconfiglib.Kconfig(str(tmp_path / "Kconfig"), warn_to_stderr=False).syms
    assert symbols["TVM_EXT_KWS"].str_value == "y" and symbols["REQUIRES_FULL_LIBC"].str_value == "y"


def test_library_properties_by_the_specification(kws: Path) -> None:
    """Fields that Arduino's library specification requires, and rules of its schema in arduino-lint."""
    lines = (kws / "library.properties").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    required = "name version author maintainer sentence paragraph category url architectures".split()
    assert [name for name in required if not found.get(name)] == []
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9 _.-]{,62}", found["name"]) and found["category"] == "Data Processing"
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["version"]) and re.match(r"[a-z]+:\S", found["url"])
    assert (kws / "src" / found["includes"]).is_file()


def test_no_form_meets_a_main(kws: Path) -> None:
    listed = [one.get("name", "") for one in ElementTree.parse(kws / "tvm_ext.kws.pdsc").iter("file")]
    build = json.loads((kws / "library.json").read_text())["build"]
    platformio = [kws / build["srcDir"] / entry[2:-1] for entry in build["srcFilter"]]
    compiled = [*(kws / "src").rglob("*.c"), *(kws / name for name in listed), *platformio]
    assert len(compiled) > 5 and all(path.is_file() for path in compiled)
    assert not any(_MAIN.search(path.read_text()) for path in compiled)
    assert any(_MAIN.search(path.read_text()) for path in kws.glob("*.c")), "the self-test has one"


def test_forms_add_metadata_alone(kws: Path) -> None:
    library = [path.name for path in kws.glob("kws*.[ch]") if not re.search("selftest|vectors", path.name)]
    parts = PackageParts.of("kws", "host", library, "tvm_ext 0.1.0")
    written = emit_forms(parts)
    assert sum(map(len, written.values())) < 10_000
    assert all((kws / name).is_file() for name in written)
    assert "idf_component_register" in cmake_of_forms(parts)


def test_the_readme_has_the_lines_of_each_system(kws: Path) -> None:
    text = (kws / "README.md").read_text()
    assert len(forms()) == 6 and all(lines in text for lines in usages("kws").values())
    assert all(1 <= len(lines.splitlines()) <= 3 for lines in usages("kws").values())


def test_a_forwarded_source_has_the_flags_it_needs() -> None:
    text = forwarded("kws.c")
    assert '#pragma GCC optimize("fp-contract=off")' in text and "FP_CONTRACT OFF" in text
