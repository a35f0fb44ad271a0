"""Options of a build as keys `tvm_ext.<option>` of TVM's PassContext.

    with pass_context(config={"tvm_ext.ram": "64KiB", "tvm_ext.optimize": "size"}):
        executable = tvm.compile(mod, target, relax_pipeline="tvm_ext.cortex_m4")

TVM 0.27 registers keys in C++ only: the constructor of `tvm.transform.PassContext` refuses keys that it does not know,
and `transform.ListConfigs` is the only other function about keys. `pass_context` therefore lets this constructor check
TVM's own keys, and makes the object with all keys by the function with which tvm_ffi reads objects from JSON. Passes
then read it like any other PassContext.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm_ffi.core import _object_type_key_to_index

from tvm_ext.core.arguments import check_mapping
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.option_checks import check_keywords
from tvm_ext.core.options import OPTIONS, BuildOptions
from tvm_ext.core.short_tracebacks import short_tracebacks

_PREFIX = "tvm_ext."
_FIELDS = ("opt_level", "required_pass", "disabled_pass", "instruments")
"""Fields of TVM's PassContext beside its config."""


@short_tracebacks
def pass_context(
    opt_level: int = 2,
    required_pass: Sequence[str] | None = None,
    disabled_pass: Sequence[str] | None = None,
    instruments: Sequence[object] | None = None,
    config: Mapping[str, object] | None = None,
) -> tvm.transform.PassContext:
    """Return a `tvm.transform.PassContext` whose config may also have keys `tvm_ext.<option>`, fields of BuildOptions.

    The pipeline of `relax_pipeline`, `partition_for_tvm_ext`, `place` and `RunCodegen` for tvm_ext read these keys from
    the context that is entered. Raises BadOptions for an unknown option or value, and TVM's own error for other keys.
    """
    check_mapping(config, "config", '{"tvm_ext.ram": "64KiB"}')
    given = config or {}
    others = {key: value for key, value in given.items() if not key.startswith(_PREFIX)}
    checked = tvm.transform.PassContext(opt_level, required_pass, disabled_pass, instruments, others)
    own = {key.removeprefix(_PREFIX): value for key, value in given.items() if key.startswith(_PREFIX)}
    if not own:
        return checked
    _options(own)
    values = {name: getattr(checked, name) for name in _FIELDS}
    values["config"] = {**dict(checked.config), **{f"{_PREFIX}{name}": value for name, value in own.items()}}
    arguments = [argument for pair in values.items() for argument in pair]
    make = tvm_ffi.get_global_func("ffi.MakeObjectFromPackedArgs")
    return make(_object_type_key_to_index("transform.PassContext"), *arguments)


def options_here(options: BuildOptions | None, context: tvm.transform.PassContext | None = None) -> BuildOptions:
    """Return the options of a call, or those in the config of a context, by default the one that is entered.

    Raises BadOptions if both are given.
    """
    config = dict((context or tvm.transform.PassContext.current()).config)
    own = {str(key).removeprefix(_PREFIX): value for key, value in config.items() if str(key).startswith(_PREFIX)}
    if not own:
        return options or BuildOptions()
    if options is not None:
        raise BadOptions(
            f"options are given, and the PassContext has {', '.join(f'{_PREFIX}{name}' for name in sorted(own))}: give "
            "all options in one of the two places."
        )
    return _options(own)


def _options(values: Mapping[str, object]) -> BuildOptions:
    """Return the options of a config. Raises BadOptions for an unknown name or value."""
    check_keywords(dict(values), OPTIONS, "PassContext")
    return BuildOptions(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    """Return a value of a config, which went through TVM's containers, as a value of Python."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | tvm_ffi.Array):
        return tuple(map(_plain, value))
    return str(value) if isinstance(value, str) else value
