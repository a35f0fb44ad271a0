"""A platform whose memories are given as TVM's memory pools, as USMP took them for workspaces and constants.

    pools = [MemoryPool(pool_name="dtcm", size_hint_bytes="48KiB"), MemoryPool(pool_name="axisram")]
    platform = platform_with_pools("nucleo-h743zi", workspace=pools)

The platform keeps its processors, its compiler and its memories for code. Fields have the names that TVM's
`WorkspacePoolInfo`, `ConstantPoolInfo` and `PoolInfoProperties` had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.arguments import check_kind
from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.platform import Platform
from tvm_ext.core.sizes import SIZE_FORMS, read_size


@dataclass(frozen=True, kw_only=True)
class MemoryPool:
    """A memory for tensors (`target_access` = `rw`) or for constants (`ro`).

    pool_name: name of the memory, `[a-z][a-z0-9_]*`. A name that the platform has describes that memory, and each field
        that is left out keeps the platform's value.
    size_hint_bytes: bytes that models may take, as a number or as a text such as `64KiB`.
    targets: names of the platform's processors that reach the memory; by default all of them.
    read_bandwidth_bytes_per_cycle, write_bandwidth_bytes_per_cycle, read_latency_cycles: as in a platform file, for the
        predicted times by which tensors get their memories. A new memory has those of the platform's default memory, a
        bandwidth for writes that is left out is the one for reads.
    section, address: linker section and address of a new memory, which firmware needs.
    """

    pool_name: str
    size_hint_bytes: int | str | None = None
    target_access: Literal["rw", "ro"] = "rw"
    targets: tuple[str, ...] = ()
    read_bandwidth_bytes_per_cycle: float | None = None
    write_bandwidth_bytes_per_cycle: float | None = None
    read_latency_cycles: int | None = None
    section: str | None = None
    address: int | None = None


Table = dict[str, Any]
"""A table of a platform file."""

_SPEEDS = ("read_bytes_per_cycle", "write_bytes_per_cycle", "latency_cycles")


def platform_with_pools(
    platform: Platform | str, *, workspace: Sequence[MemoryPool], constants: MemoryPool | None = None
) -> Platform:
    """Return the platform with these memories: workspace pools hold tensors, the pool of constants holds weights.

    The largest workspace pool is the default memory, of pools of equal size the first. Tensors get the other pools
    where that saves time, or where the default memory is too small. Without `constants`, weights stay in the memory
    that the platform has for them. The board in QEMU remains if each pool is a memory of the platform. Other memories
    for tensors are left out; if the firmware's variables lie there, the model gets none of its bytes.
    Raises BadPlatform for a pool that does not fit the platform, and for two pools of one name.
    """
    base = Platform.load(platform) if isinstance(platform, str) else platform
    pools = [*workspace, *([constants] if constants else [])]
    _check_pools(workspace, constants)
    table = cast("Table", json.loads(base.to_json()))
    before: dict[str, Table] = {memory["name"]: memory for memory in table["memories"]}
    described = {pool.pool_name: _memory(pool, before, base) for pool in pools}
    board = base.board if described.keys() <= before.keys() else None
    variables = board.data_memory if board else ""
    kept = {
        name: {**memory, "reserved_bytes": memory["capacity_bytes"] - ALIGNMENT_BYTES} if name == variables else memory
        for name, memory in before.items()
        if name not in described and (memory["kind"] == "rom" or name == variables)
    }
    memories = {**kept, **described}
    weights = constants.pool_name if constants else base.weights
    if weights not in memories:
        raise BadPlatform(
            f"pools: the weights of {base.name} lie in {weights}, which is no pool. Give a pool of constants, or a "
            f"workspace pool {weights}."
        )
    changed = {
        "memories": list(memories.values()),
        "links": _links(table["links"], pools, memories, base),
        "activations": max((pool.pool_name for pool in workspace), key=lambda name: _usable_bytes(memories[name])),
        "weights": weights,
        "board": _board(table["board"], memories) if board else None,
    }
    return Platform.from_json(json.dumps(table | changed))


def _board(board: Table, memories: Mapping[str, Table]) -> Table:
    """Return the board without the memories that are left out."""
    return {**board, "memories": {name: place for name, place in board["memories"].items() if name in memories}}


def _usable_bytes(memory: Table) -> int:
    return int(memory["capacity_bytes"]) - int(memory.get("reserved_bytes", 0))


def _check_pools(workspace: Sequence[MemoryPool], constants: MemoryPool | None) -> None:
    """Raise BadPlatform for no pool, two pools of one name, and tensors in a pool that cannot be written."""
    for pool in (*workspace, constants):
        check_kind(pool, "a pool", MemoryPool, "a MemoryPool")
    names = [pool.pool_name for pool in workspace]
    if not names:
        raise BadPlatform("pools: no workspace pool is given; tensors need one with target_access = 'rw'.")
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise BadPlatform(f"pools: two workspace pools have the name {twice!r}; give each memory once.")
    for pool in workspace:
        if pool.target_access != "rw":
            raise BadPlatform(
                f"pool {pool.pool_name}: target_access = {pool.target_access!r}, but tensors are written; give 'rw', "
                "or give the pool as constants."
            )
    if constants is None:
        return
    if constants.target_access not in ("rw", "ro"):
        raise BadPlatform(
            f"pool {constants.pool_name}: target_access = {constants.target_access!r}: give 'ro' or 'rw'."
        )
    same = next((pool for pool in workspace if pool.pool_name == constants.pool_name), constants)
    if same != constants:
        raise BadPlatform(
            f"pool {constants.pool_name}: its descriptions as workspace and as constants differ; give the same pool "
            "twice, or two names."
        )


def _memory(pool: MemoryPool, memories: Mapping[str, Table], base: Platform) -> Table:
    """Return the table of a pool's memory: the platform's memory of that name, or a new one, with the given values."""
    kind = "ram" if pool.target_access == "rw" else "rom"
    known = memories.get(pool.pool_name)
    if known is None and pool.size_hint_bytes is None:
        raise BadPlatform(
            f"pool {pool.pool_name}: its size is unknown, because {base.name} has no memory of that name; it has "
            f"{', '.join(memories)}. Give size_hint_bytes."
        )
    if known is not None and known["kind"] != kind:
        raise BadPlatform(
            f"pool {pool.pool_name}: target_access = {pool.target_access!r}, but {base.name} has a {known['kind']} of "
            "that name. Give the other access, or another name."
        )
    default = memories[base.activations]
    section = f".{'bss' if kind == 'ram' else 'rodata'}.{pool.pool_name}"
    new = {"name": pool.pool_name, "kind": kind, "section": section, **{key: default[key] for key in _SPEEDS}}
    given = {**_speeds(pool), "section": pool.section, "address": pool.address}
    changed = {key: value for key, value in given.items() if value is not None}
    return {**(known or new), **changed, **_size(pool, known)}


def _speeds(pool: MemoryPool) -> dict[str, float | None]:
    """Return the speeds that a pool gives, by the keys of platform files."""
    read, write = pool.read_bandwidth_bytes_per_cycle, pool.write_bandwidth_bytes_per_cycle
    if write is None and pool.target_access == "rw":
        write = read
    return dict(zip(_SPEEDS, (read, write, pool.read_latency_cycles), strict=True))


def _size(pool: MemoryPool, known: Table | None) -> Table:
    """Return capacity and reserved bytes. A pool smaller than the platform's memory reserves the rest of it."""
    if pool.size_hint_bytes is None:
        return {}
    try:
        size = read_size(pool.size_hint_bytes)
    except ValueError as error:
        raise BadPlatform(f"pool {pool.pool_name}: size_hint_bytes = {pool.size_hint_bytes!r}: {error}") from None
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise BadPlatform(f"pool {pool.pool_name}: size_hint_bytes = {size!r}: give {SIZE_FORMS}, at least 1.")
    if known is None:
        return {"capacity_bytes": size}
    if size > known["capacity_bytes"]:
        raise BadPlatform(
            f"pool {pool.pool_name}: size_hint_bytes = {size}, but the platform's memory of that name has "
            f"{known['capacity_bytes']} B. Give at most as much, or another name."
        )
    return {"reserved_bytes": known["capacity_bytes"] - size}


def _links(
    links: Sequence[Table], pools: Sequence[MemoryPool], memories: Mapping[str, Table], base: Platform
) -> list[Table]:
    """Return the links among remaining memories and processors. New or changed pools get links from processors."""
    processors = [processor.name for processor in base.processors]
    known = {memory.name for memory in base.memories}
    linked = {
        pool.pool_name: pool.targets or tuple(one.name for one in base.processors if one.kind != "tvm")
        for pool in pools
        if pool.targets or pool.pool_name not in known or any(speed is not None for speed in _speeds(pool).values())
    }

    def remains(link: Table) -> bool:
        ends = {link["source"], link["target"]}
        return ends <= {*memories, *processors} and not (ends & linked.keys() and ends & {*processors})

    rates = {name: max(memories[name][key] for key in _SPEEDS[:2]) for name in linked}
    added = [
        {"source": processor, "target": name, "bytes_per_cycle": rates[name]}
        for name, reaching in linked.items()
        for processor in reaching
    ]
    return [*filter(remains, links), *added]
