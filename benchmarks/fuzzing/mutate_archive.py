"""Damage to zip archives, .npz and .pt2: one member at a time, packed again with right sums, or the archive's bytes."""

from __future__ import annotations

import io
import json
import random
import zipfile

from benchmarks.fuzzing.mutate_bytes import mutate_bytes
from benchmarks.fuzzing.mutate_program import mutate_config, mutate_program
from benchmarks.fuzzing.mutate_tree import STRINGS, mutate_tree

_PICKLE = b"cos\nsystem\n(S'true'\ntR."  # what runs a command where it is unpickled
_TIME = (1980, 1, 1, 0, 0, 0)


def mutate_archive(data: bytes, rng: random.Random) -> bytes:
    """Mostly a member's content; else its name, its absence, a second one, or any byte."""
    if rng.random() < 0.2:
        return mutate_bytes(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(item.filename, archive.read(item)) for item in archive.infolist()]
    at = rng.randrange(len(members))
    programs = [index for index, (name, _) in enumerate(members) if name.endswith(".json")]
    if programs and rng.random() < 0.6:
        at = rng.choice(programs)
    name, content = members[at]
    way = rng.random()
    if way < 0.75:
        members[at] = (name, _content(name, content, rng))
    elif way < 0.8:
        del members[at]
    elif way < 0.85:
        members.append((name, mutate_bytes(content, rng)))
    elif way < 0.9:
        members[at] = (
            rng.choice((*STRINGS, f"../{name}", f"/{name}", members[rng.randrange(len(members))][0])),
            content,
        )
    else:
        members[at] = (name, members[rng.randrange(len(members))][1])
    return packed(members, zipfile.ZIP_DEFLATED if rng.random() < 0.2 else zipfile.ZIP_STORED)


def _content(name: str, content: bytes, rng: random.Random) -> bytes:
    if name.endswith("models/model.json") and rng.random() < 0.8:
        return mutate_program(content, rng)
    if name.endswith("_config.json") and rng.random() < 0.8:
        return mutate_config(content, rng)
    if name.endswith(".json") and rng.random() < 0.8:
        try:
            return json.dumps(mutate_tree(json.loads(content), rng)).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return content
    if name.endswith(".pt") and rng.random() < 0.5:
        return _PICKLE
    if name.endswith(".npy") and rng.random() < 0.1:  # an array of objects
        return content[:10] + content[10:].replace(b"'<f4'", b"'|O'  ", 1)[: len(content) - 10] + _PICKLE
    if name.endswith(".npy") and rng.random() < 0.6:  # its header is text: the first hundred bytes
        return mutate_bytes(content[:100], rng) + content[100:]
    return mutate_bytes(content, rng)


def packed(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive without times; names may come twice."""
    import warnings

    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")
        for name, content in members:
            info = zipfile.ZipInfo(name.replace("\0", "") or "x", _TIME)
            info.compress_type = compression
            archive.writestr(info, content)
    return file.getvalue()
