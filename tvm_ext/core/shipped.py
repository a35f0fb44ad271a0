"""The platforms that tvm_ext ships, which are cores as in QEMU, chips and boards: their files, and the names that find
them.

Lists read the files directly, without the slow checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.files.user_tables import read_table
from tvm_ext.core.sizes import read_size

_PACKAGE = Path(__file__).parent.parent
_CORES = _PACKAGE / "platforms"
_BOARDS = _PACKAGE / "boards"
_MOST_NEAR = 3
_SIZES = ("capacity_bytes", "reserved_bytes")


def core_names() -> list[str]:
    """Return the names of the cores, and of this machine, sorted."""
    return sorted(path.stem for path in _CORES.glob("*.toml"))


def board_names() -> list[str]:
    """Return the names of the chips and boards, sorted."""
    return sorted(path.stem for path in _BOARDS.glob("*.toml"))


def shipped_names() -> list[str]:
    """Return all names, cores first."""
    return [*core_names(), *board_names()]


def choices() -> str:
    """Return what a platform may be, as messages list it."""
    cores, boards = ", ".join(core_names()), len(board_names())
    return f"{cores}; one of {boards} boards, which tvm-ext platforms lists; or a .toml file of your own"


def core_tables() -> list[dict[str, Any]]:
    """Return the tables of the cores' files, sorted by name. Raises BadPlatform.

    Tests load each file with all checks.
    """
    return [read_platform_table(_CORES / f"{name}.toml") for name in core_names()]


def board_tables() -> list[dict[str, Any]]:
    """Return the tables of the files of chips and boards, sorted by name. Raises BadPlatform.

    Tests load each file with all checks.
    """
    return [read_platform_table(_BOARDS / f"{name}.toml") for name in board_names()]


def platform_path(name_or_path: str) -> Path:
    """Return the file that a name, an alias or a path denotes. Raises BadPlatform."""
    is_path = name_or_path.endswith(".toml") or "/" in name_or_path
    return Path(name_or_path) if is_path else shipped_path(name_or_path)


def shipped_path(name: str) -> Path:
    """Return the file that a name or an alias denotes. Raises BadPlatform with similar names."""
    exact = {path.stem: path for path in (*_CORES.glob("*.toml"), *_BOARDS.glob("*.toml"))}
    if name in exact:
        return exact[name]
    found = names_of_files(exact, {table["name"]: table.get("aliases", ()) for table in board_tables()})
    if plain(name) in found:
        return exact[found[plain(name)]]
    near = _near(plain(name), found)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise BadPlatform(f"unknown platform {name!r}.{hint} Shipped: {choices()}, by its path.")


def names_of_files(names: Iterable[str], aliases: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return platform names by the plain form of each name and alias. Raises BadPlatform where two platforms share one.

    aliases: of each platform, by its name.
    """
    found = {plain(name): name for name in names}
    for name, others in aliases.items():
        for alias in others:
            if found.setdefault(plain(alias), name) != name:
                raise BadPlatform(
                    f"{name}: aliases: {alias!r} is a name of {found[plain(alias)]}, too; case, '-' and '_' do not "
                    "tell names apart. Leave one of them out."
                )
    return found


def plain(name: str) -> str:
    """Return a name without differences that do not count: case, `-` and `_`."""
    return re.sub(r"[-_]", "", name.lower())


def _near(name: str, found: Mapping[str, str]) -> list[str]:
    """Return the names of platforms with similar names or aliases: parts of the name, or similar spellings."""
    parts = [known for known in found if len(name) > 1 and known.endswith(name)]
    parts += [known for known in found if len(name) > 3 and (known.startswith(name) or name.startswith(known))]
    spelt = get_close_matches(name, found, _MOST_NEAR)
    return list(dict.fromkeys(found[known] for known in [*spelt, *parts]))[:_MOST_NEAR]


def read_platform_table(path: Path) -> dict[str, Any]:
    """Return the table of a file, with sizes as numbers. Raises BadPlatform for a file that is not TOML."""
    table = cast("dict[str, Any]", read_table(path, "platform", BadPlatform))
    for memory in table["memories"]:
        memory.update({key: read_size(memory[key]) for key in _SIZES if key in memory})
    return table
