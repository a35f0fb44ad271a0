"""One case from end to end: load, compile, gcc, run, compare with the runtime, in floats and quantized here."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.conformance.run_case import build_library, call_compiled
from benchmarks.pairing.operator_case import Model, Operator, PairCase, choice_of, seed_of
from codegen_c.backend.build import Compiled
from codegen_c.program.interface import Port
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.errors import BuildFailed, TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load

Array = np.ndarray
Arrays = Mapping[str, Array]

VERDICTS = ("equal", "refused", "standard", "wrong", "foreign", "not taken", "stays float")
"""Ends of a case.

`standard`: other than the runtime, as the standard has it, and as docs/edges.md says. `foreign`: an error that is not
this project's, or C that does not compile. `not taken`: neither the runtime nor the standard's evaluation takes the
model. `stays float`: the operator has no int8 form, so that there is nothing to quantize.
"""

_NO_NOISE_DB = 200.0
_NUM_SAMPLES, _NUM_CALIBRATION = 2, 8
_RTOL, _ATOL = 1e-3, 1e-5
_NARROW = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
_ENOUGH_DB, _LOST_DB = 20.0, 12.0
"""Signal-to-noise ratio at which a quantized case is right, and how far it may fall behind that of rounding alone."""
_MATCH = 0.9
"""Share of integers, such as indices, that a quantized case has in common with the runtime on rounded inputs."""
_NO_INT8_FORM = "no float operator of the model has an int8 form"
_FOREIGN = re.compile(r"TVM's importer fails|InternalError|TVMError|Traceback|SystemError")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Verdicts of a case in floats and quantized here (empty where it is not), with the reason, and off: the largest
    difference in parts of the largest value; snr_db of the quantized outputs at least."""

    verdict: str
    reason: str = ""
    off: float = 0.0
    quantized: str = ""
    quantized_reason: str = ""
    snr_db: float | None = None


@dataclass(frozen=True, kw_only=True)
class _End:
    verdict: str
    reason: str = ""
    figure: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """A model with its samples, and the runtime's outputs for each."""

    model: Model
    samples: list[dict[str, Array]]
    expected: list[list[Array]]


def examined(operator: Operator, cases: Sequence[PairCase], *, quantized: bool = True) -> list[Outcome]:
    """Return the outcomes of cases of one operator, whatever they raise; a fault in the C code ends the process.

    They are compiled together, as parts of one model; a model that raises is halved until it is one case's.
    """
    outcomes: dict[int, Outcome] = {}
    parts: dict[int, _Part] = {}
    unlike = {}
    for index, case in enumerate(cases):
        choice = choice_of(operator, case)
        unlike[index] = operator.unlike(choice)
        try:
            parts[index] = _part(operator.make(choice), case.key)
        except Exception as error:
            outcomes[index] = Outcome(verdict="not taken", reason=_first_line(error))
    for index, end in _together(parts, _in_floats).items():
        verdict, reason = end.verdict, end.reason
        if verdict == "wrong" and unlike[index]:
            verdict, reason = "standard", unlike[index]
        outcomes[index] = Outcome(verdict=verdict, reason=reason, off=end.figure)
    floats = {index: part for index, part in parts.items() if outcomes[index].verdict == "equal" and _is_float(part)}
    if quantized and operator.quantized:
        for index, end in _together(floats, _in_int8).items():
            outcomes[index] = replace(
                outcomes[index], quantized=end.verdict, quantized_reason=end.reason, snr_db=end.figure
            )
    return [outcomes[index] for index in range(len(cases))]


def examined_model(model: Model, key: str, *, quantized: bool = False) -> Outcome:
    """Return the outcome of one model. key: seed of its samples."""
    return examined_models({key: model}, quantized=quantized)[key]


def examined_models(models: Mapping[str, Model], *, quantized: bool = False) -> dict[str, Outcome]:
    """Return the outcomes of models, compiled together. Their keys are the seeds of their samples."""
    cases = [PairCase(operator="", row=(index,), key=key) for index, key in enumerate(models)]
    operator = Operator(form="", name="", factors={"": [*models.values()]}, make=lambda choice: choice[""])
    return dict(zip(models, examined(operator, cases, quantized=quantized), strict=True))


def _part(model: Model, key: str) -> _Part:
    """Return samples with the runtime's outputs; where the runtime lacks the operator, the standard's stand for it."""
    random = np.random.default_rng(seed_of(key))
    samples = [{name: spec.draw(random) for name, spec in model.inputs.items()} for _ in range(_NUM_CALIBRATION)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = [model.run(sample) for sample in samples]
        except Exception as error:
            if model.standard is None or "NOT_IMPLEMENTED" not in str(error):
                raise
            model = replace(model, run=model.standard, standard=None)
            expected = [model.run(sample) for sample in samples]
    return _Part(model=model, samples=samples, expected=expected)


def _is_float(part: _Part) -> bool:
    return all(spec.dtype == "float32" for spec in part.model.inputs.values())


def _together(parts: Mapping[int, _Part], check: Callable[[Path, Sequence[_Part]], list[_End]]) -> dict[int, _End]:
    """Return the end of each part, those that can be joined as parts of one model."""
    groups: dict[str, list[int]] = {}
    for index, part in parts.items():
        groups.setdefault(part.model.kind, []).append(index)
    ends: dict[int, _End] = {}
    waiting = list(groups.values())
    while waiting:
        group = waiting.pop()
        found = _ended(check, [parts[index] for index in group])
        if len(found) == len(group):
            ends.update(zip(group, found, strict=True))
        else:
            waiting += [group[: len(group) // 2], group[len(group) // 2 :]]
    return ends


def _ended(check: Callable[[Path, Sequence[_Part]], list[_End]], parts: Sequence[_Part]) -> list[_End]:
    """Return the end of each part; nothing where several of them together raise."""
    with TemporaryDirectory(prefix="pairs_") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return check(Path(name), parts)
        except Exception as error:
            return [_raised(error)] if len(parts) == 1 else []


def _raised(error: Exception) -> _End:
    """Return the end of a model that raises."""
    if isinstance(error, BuildFailed):
        found = re.findall(r"error: .*", str(error))
        return _End(verdict="foreign", reason=f"BuildFailed: {(found or [str(error)])[0][:200]}")
    if not isinstance(error, TvmExtError):
        where = traceback.extract_tb(error.__traceback__)[-1]
        return _End(verdict="foreign", reason=f"{_first_line(error)} ({Path(where.filename).name}:{where.lineno})")
    if _NO_INT8_FORM in str(error):
        return _End(verdict="stays float")
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
    return _End(verdict="foreign" if _FOREIGN.search(str(error)) else "refused", reason=reason)


def _source(parts: Sequence[_Part]) -> Any:
    """Return what `load` takes, of one model or of several as one."""
    models = [part.model for part in parts]
    source = (models[0].join(models) if len(models) > 1 else models[0]).source
    return source() if callable(source) else source


def _inputs(names: Sequence[str], parts: Sequence[_Part], index: int) -> dict[str, Array]:
    """Return the samples of an index as inputs of the joined model, which stand in the parts' order."""
    values = [array for part in parts for array in part.samples[index].values()]
    keys = [key if len(parts) == 1 else f"p{i}_{key}" for i, part in enumerate(parts) for key in part.samples[index]]
    if set(names) <= set(keys):
        return {key: value for key, value in zip(keys, values, strict=True) if key in names}
    return dict(zip(names, values, strict=True))


def _in_floats(folder: Path, parts: Sequence[_Part]) -> list[_End]:
    """Return the verdicts on models as they are."""
    mod = load(_source(parts), states={})
    names = PortNames.read(mod)
    _, compiled = compile_model(mod, Platform.load("host"), BuildOptions(io="caller", name="m"))
    run = _runner(folder, compiled)
    ends = [_End(verdict="equal")] * len(parts)
    for sample in range(_NUM_SAMPLES):
        results = run(_inputs(names.inputs, parts, sample))
        found = iter([results[name] for name in names.outputs])
        for index, part in enumerate(parts):
            mine = [next(found) for _ in part.expected[sample]]
            if ends[index].verdict == "equal":
                ends[index] = _float_end(part, sample, mine, ends[index])
    return ends


def _float_end(part: _Part, sample: int, found: Sequence[Array], before: _End) -> _End:
    worst = before.figure
    for mine, theirs in zip(found, part.expected[sample], strict=True):
        said, off = _difference(mine, theirs)
        if said:
            reason = said + _second_opinion(part.model, part.samples[sample], found)
            return _End(verdict="wrong", reason=reason, figure=off)
        worst = max(worst, off)
    return _End(verdict="equal", figure=worst)


def _second_opinion(model: Model, sample: Arrays, found: Sequence[Array]) -> str:
    """Say whether the standard's own evaluation agrees with us against the runtime."""
    if model.standard is None:
        return ""
    try:
        standard = model.standard(sample)
    except Exception as error:
        return f"; the standard's evaluation fails: {_first_line(error)}"
    agree = all(not _difference(mine, theirs)[0] for mine, theirs in zip(found, standard, strict=False))
    return "; the standard's evaluation gives our result" if agree else "; the standard's evaluation differs, too"


def _in_int8(folder: Path, parts: Sequence[_Part]) -> list[_End]:
    """Return the verdicts on models quantized here, by the signal-to-noise ratio of their dequantized outputs.

    What rounding the inputs and the outputs to their scales costs alone is known: the runtime itself computes on the
    rounded inputs. The package may be 12 dB worse for its weights and inner tensors, or has 20 dB anyway.
    """
    mod = load(_source(parts), states={})
    names = PortNames.read(mod)
    options = BuildOptions(io="caller", name="m", quantize="int8")
    samples = [_inputs(names.inputs, parts, index) for index in range(_NUM_CALIBRATION)]
    _, compiled = compile_model(mod, Platform.load("host"), options, samples)
    run = _runner(folder, compiled)
    ports = {port.source: port for port in (*compiled.interface.inputs, *compiled.interface.outputs)}
    ends = [_End(verdict="equal", figure=_NO_NOISE_DB)] * len(parts)
    for sample in range(_NUM_SAMPLES):
        stored = {name: _stored(array, ports[name]) for name, array in samples[sample].items()}
        results = run(stored)
        outputs = iter(names.outputs)
        given = iter(names.inputs)
        for index, part in enumerate(parts):
            own_inputs = [next(given) for _ in part.samples[sample]]
            own = [next(outputs) for _ in part.expected[sample]]
            if ends[index].verdict != "equal":
                continue
            if all(ports[name].dtype != "int8" for name in (*own_inputs, *own)):
                ends[index] = _End(verdict="stays float")
                continue
            rounded = {
                key: _real(stored[name], ports[name])
                for key, name in zip(part.samples[sample], own_inputs, strict=True)
            }
            ideal = part.model.run(rounded)
            found = [results[name] for name in own]
            ends[index] = _int8_end(part, sample, found, ideal, [ports[name] for name in own], ends[index])
    return ends


def _int8_end(
    part: _Part, sample: int, found: Sequence[Array], ideal: Sequence[Array], ports: Sequence[Port], before: _End
) -> _End:
    least = before.figure
    for stored, theirs, best, port in zip(found, part.expected[sample], ideal, ports, strict=True):
        mine = _real(stored, port)
        if mine.shape != theirs.shape:
            return _End(verdict="wrong", reason=f"{list(mine.shape)} instead of {list(theirs.shape)}")
        if theirs.dtype.kind != "f":
            if mine.size and max(float(np.mean(mine == best)), float(np.mean(mine == theirs))) < _MATCH:
                return _End(verdict="wrong", reason=f"{np.mean(mine == best):.0%} of integers agree")
            continue
        reached, possible = _snr_db(mine, theirs), _snr_db(_real(_stored(best, port), port), theirs)
        if reached < _ENOUGH_DB and reached < possible - _LOST_DB:
            said = f"{reached:.1f} dB, where rounding inputs and outputs alone gives {possible:.1f} dB"
            return _End(verdict="wrong", reason=said, figure=reached)
        least = min(least, reached)
    return _End(verdict="equal", figure=least)


def _runner(folder: Path, compiled: Compiled) -> Callable[[Arrays], Arrays]:
    sources = compiled.sources()
    for file_name, text in sources.items():
        (folder / file_name).write_text(text, encoding="utf-8")
    units = sorted(file_name for file_name in sources if file_name.endswith(".c"))
    library = build_library(folder, "".join(f'#include "{unit}"\n' for unit in units))
    return lambda given: call_compiled(library, compiled.interface, given)


def _stored(array: Array, port: Port) -> Array:
    """Return floats as a port stores them. Raises ValueError for a port of integers without a scale."""
    if port.dtype == str(array.dtype) or array.dtype.kind != "f":
        return array
    if port.quantization is None:
        raise ValueError(f"port {port.source} is {port.dtype} and has no scale")
    scale, zero_point = port.quantization.scale, port.quantization.zero_point
    limits = np.iinfo(port.dtype)
    steps = np.clip(np.rint(array.astype("float64") / scale) + zero_point, limits.min, limits.max)
    return np.asarray(steps, port.dtype)


def _real(array: Array, port: Port) -> Array:
    if port.quantization is None or array.dtype.kind == "f":
        return array
    real = (array.astype("float64") - port.quantization.zero_point) * port.quantization.scale
    return np.asarray(real, "float32")


def _snr_db(found: Array, expected: Array) -> float:
    signal = float(np.mean(np.square(expected.astype("float64")))) if expected.size else 0.0
    noise = float(np.mean(np.square(found.astype("float64") - expected.astype("float64")))) if expected.size else 0.0
    if noise == 0 or not np.isfinite(signal):
        return _NO_NOISE_DB
    return float(10 * np.log10(signal / noise)) if signal else -_NO_NOISE_DB


def _difference(found: Array, expected: Array) -> tuple[str, float]:
    """Return what differs, empty where nothing does, and by how much in parts of the largest value."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}", float("inf")
    if not found.size:
        return "", 0.0
    if found.dtype.kind not in "fV":
        count = int(np.count_nonzero(found != expected))
        return (f"{count} of {found.size} elements differ" if count else ""), float(count)
    mine, theirs = found.astype("float64"), expected.astype("float64")
    finite = np.isfinite(theirs)
    largest = float(np.abs(theirs[finite]).max(initial=0))
    rtol = _NARROW.get(found.dtype.name, _RTOL)
    with np.errstate(all="ignore"):
        off = float(np.abs(mine - theirs)[finite & np.isfinite(mine)].max(initial=0)) / (largest or 1.0)
    close = np.allclose(mine, theirs, rtol=rtol, atol=max(_ATOL, rtol * 0.01) * max(largest, 1e-3), equal_nan=True)
    return ("" if close else f"off by {off:.3g} of the largest value"), off


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0][:200]}"
