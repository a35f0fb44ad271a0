"""Checks of build options: sizes, names, and options that exclude each other.

Each function raises BadOptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.errors import BadOptions, UnknownOption
from tvm_ext.core.input_forms import InputForm
from tvm_ext.core.names import hides_header, identifier, is_device
from tvm_ext.core.option_table import OptionEntry, renamed_options
from tvm_ext.core.option_values import shown

_MOST_BYTES = 1 << 48
_MOST_LABEL_CHARACTERS = 200
_MOST_DECIBELS = 1000


def check_keywords(
    choices: Iterable[str], options: Mapping[str, OptionEntry], taker: str, *, beside: Iterable[str] = ()
) -> None:
    """Refuse keywords that are not options, and suggest the nearest option.

    beside: arguments of `taker` itself.
    """
    known = [*options]
    renamed = renamed_options(options)
    for name in choices:
        if name not in options:
            near = [renamed[name]] if name in renamed else get_close_matches(name, [*known, *beside], 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(known)}."
            raise UnknownOption(f"{taker} has no option {name!r}. {hint}")


def check_bytes(ram: int | Mapping[str, int] | None, flash: int | None, pin: Mapping[str, int] | None) -> None:
    """Refuse impossible limits and impossible offsets in an arena."""
    for where, num_bytes in (ram if isinstance(ram, Mapping) else {"": ram}).items():
        if num_bytes is not None and not 0 < num_bytes < _MOST_BYTES:
            said = f"ram = {shown(num_bytes)}{f' of {where}' if where else ''}"
            raise BadOptions(f"{said}: give at least 1 byte, and less than {_MOST_BYTES}.")
    if flash is not None and not 0 < flash < _MOST_BYTES:
        raise BadOptions(f"flash = {shown(flash)}: give at least 1 byte, and less than {_MOST_BYTES}.")
    for name, offset in (pin or {}).items():
        if not 0 <= offset < _MOST_BYTES or offset % ALIGNMENT_BYTES:
            raise BadOptions(
                f"pin {name}={shown(offset)}: an offset is a multiple of {ALIGNMENT_BYTES} bytes, 0 or more, and "
                f"less than {_MOST_BYTES}."
            )


def check_forms(*, io: str, reread: bool, is_pinned: bool, context: str, relocatable_image: bool) -> None:
    """Refuse combinations of forms of inputs, outputs and instances that exclude each other."""
    if reread and io != "stream":
        raise BadOptions(
            f"reread = True: with io = {io!r} no rows of inputs are asked for. Choose io = 'stream', or leave "
            "reread out."
        )
    if io != "arena" and is_pinned:
        raise BadOptions(f"pin places tensors in the arena; with io = {io!r} inputs and outputs are not there.")
    if relocatable_image and context != "caller":
        raise BadOptions(
            "relocatable_image: it has no variables, callers hold the arenas and states; it needs context = 'caller'."
        )


def check_placed(place_port: Mapping[str, str] | None, *, io: str, context: str) -> None:
    """Refuse memories for inputs and outputs that the application holds."""
    if place_port and io != "arena":
        raise BadOptions(
            f"place_port: with io = {io!r} inputs and outputs lie where the application has them. Choose io = 'arena', "
            "or leave place_port out."
        )
    if place_port and context == "caller":
        raise BadOptions(
            "place_port: with context = 'caller' an instance is one block of memory, inputs and outputs in it. Choose "
            "context = 'static', or leave place_port out."
        )


def check_new_frames(new_frames: Mapping[str, int] | None, time_axis: Mapping[str, int] | None) -> None:
    """Refuse more than one window over time, and a time axis for another input."""
    if len(new_frames or {}) > 1 or set(time_axis or {}) - set(new_frames or {}):
        raise BadOptions("new_frames: one input over time, and time_axis of that input alone, can be given.")


def check_renames(rename: Mapping[str, str] | None) -> None:
    """Refuse names that cannot be used in C unchanged, and the same name for two inputs or outputs."""
    given: dict[str, str] = {}
    for old, new in (rename or {}).items():
        if (legal := identifier(new)) != new:
            raise BadOptions(
                f"rename {old}={shown(new)}: it becomes a part of C identifiers, which are lower case letters, digits "
                f"and underscores, a letter first, at most 40 characters; {legal} is one."
            )
        if new in given:
            raise BadOptions(f"rename {old}={new}: {given[new]} is renamed to {new}, too; choose another name.")
        given[new] = old


def check_inputs(forms: Mapping[str, str] | None) -> None:
    """Refuse unknown forms of inputs."""
    for name, text in (forms or {}).items():
        try:
            InputForm.parse(text)
        except ValueError as error:
            raise BadOptions(f"input {name}={shown(text)}: {error}.") from None


def check_labels(labels: Sequence[str], *, image: bool) -> None:
    """Refuse labels that a table in C cannot hold, and labels for a relocatable image."""
    for number, label in enumerate(labels, start=1):
        if not label or len(label) > _MOST_LABEL_CHARACTERS or not label.isprintable():
            raise BadOptions(
                f"labels: number {number} is {shown(label)}; give 1 to {_MOST_LABEL_CHARACTERS} printable characters."
            )
    if labels and image:
        raise BadOptions("labels: an image is loaded without tables; leave labels out, or relocatable_image.")


def check_decibels(min_snr_db: float) -> None:
    """Refuse impossible signal-to-noise ratios."""
    if not abs(min_snr_db) <= _MOST_DECIBELS:
        raise BadOptions(
            f"min_snr_db = {shown(min_snr_db)}: give a finite number of decibels, at most {_MOST_DECIBELS}."
        )


def check_targets(verify: tuple[str, ...] | None) -> None:
    """Refuse unknown targets of verification."""
    for target in verify or ():
        if target not in ("host", "qemu"):
            raise BadOptions(f"verify = {target!r}: choose host, qemu, both, or an empty tuple.")


def check_name(name: str | None) -> None:
    """Reject a name that is not a valid C prefix, or that is the name of an existing header."""
    if name is not None and not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", name):
        raise BadOptions(
            f"name = {name!r}: it prefixes C identifiers; use lower case letters, digits "
            "and underscores, a letter first, at most 48 characters."
        )
    if name is not None and hides_header(name):
        raise BadOptions(f"name = {name!r}: {name}.h would hide another header; choose another name.")
    if name is not None and is_device(name):
        raise BadOptions(f"name = {name!r}: Windows takes {name}.c for a device; choose another name.")


def quantization_problem(*, quantize: str, io_type: str, activations: str, weights: str) -> str | None:
    """Return why these four options cannot be combined, in words for the user, or None where they can."""
    if quantize == "none" and io_type != "int8":
        return "io_type = 'float32': it says what quantization leaves; it needs quantize = 'int8' or 'auto'."
    if quantize == "none" and activations != "int8":
        return f"activations = {activations!r}: it says what quantization makes; it needs quantize = 'int8' or 'auto'."
    if activations == "int16" and weights != "int8":
        return (
            f"weights = {weights!r} and activations = 'int16': kernels for weights of 4 bits take activations of 8. "
            "Choose activations = 'mixed', or weights = 'int8'."
        )
    return None
