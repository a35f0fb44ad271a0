"""One case from end to end: load, compile, gcc, run, compare with the runtime, in floats and quantized here."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.conformance.run_case import build_library, call_compiled
from benchmarks.pairing.operator_case import Model, Operator, PairCase, choice_of, seed_of
from codegen_c.backend.build import Compiled
from codegen_c.program.interface import Port
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.errors import BuildFailed, TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.load import load
from tvm_ext.pipeline import compile_model

Array = np.ndarray
Arrays = Mapping[str, Array]

VERDICTS = ("equal", "refused", "standard", "wrong", "foreign", "not taken", "stays float")
"""`standard`: other than the runtime, as the standard's own evaluation has it, and as docs/edges.md says. `foreign`: an
error that is not this project's, or C that does not compile. `not taken`: neither the runtime nor the standard's evaluation takes the model.
`stays float`: the operator has no int8 form, so that there is nothing to quantize."""

_NUM_SAMPLES, _NUM_CALIBRATION = 2, 8
_RTOL, _ATOL = 1e-3, 1e-5
_NARROW = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
_ENOUGH_DB, _LOST_DB = 20.0, 12.0
"""Signal-to-noise ratio at which a quantized case is right, and how far it may fall behind that of rounding alone."""
_MATCH = 0.9
"""Share of integers, such as indices, that a quantized case has in common with the runtime on rounded inputs."""
_NO_INT8_FORM = "the model holds no float operator that has an int8 form"
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


def examined(operator: Operator, case: PairCase, *, quantized: bool = True) -> Outcome:
    """Return the outcome of a case, whatever it raises; a fault in the C code ends the process."""
    choice = choice_of(operator, case)
    try:
        model = operator.make(choice)
    except Exception as error:
        return Outcome(verdict="not taken", reason=_first_line(error))
    outcome = examined_model(model, case.key, quantized=quantized and operator.quantized)
    unlike = operator.unlike(choice) if outcome.verdict == "wrong" else ""
    return replace(outcome, verdict="standard", reason=unlike) if unlike else outcome


def examined_model(model: Model, key: str, *, quantized: bool = False) -> Outcome:
    """Return the outcome of one model. key: seed of its samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            random = np.random.default_rng(seed_of(key))
            samples = [_drawn(model, random) for _ in range(_NUM_CALIBRATION)]
            model, expected = _answered(model, samples)
        except Exception as error:
            return Outcome(verdict="not taken", reason=_first_line(error))
        end = _ended(lambda folder: _in_floats(folder, model, samples, expected))
        floats = all(spec.dtype == "float32" for spec in model.inputs.values())
        if not quantized or end.verdict != "equal" or not floats:
            return Outcome(verdict=end.verdict, reason=end.reason, off=end.figure)
        other = _ended(lambda folder: _in_int8(folder, model, samples, expected))
    return Outcome(
        verdict=end.verdict, reason=end.reason, off=end.figure, quantized=other.verdict,
        quantized_reason=other.reason, snr_db=other.figure,
    )  # fmt: skip


def _answered(model: Model, samples: Sequence[Arrays]) -> tuple[Model, list[list[Array]]]:
    """Return the runtime's outputs, and the model; where the runtime lacks the operator, the standard's stand for it."""
    try:
        return model, [model.run(sample) for sample in samples]
    except Exception:
        if model.standard is None:
            raise
        alone = replace(model, run=model.standard, standard=None)
        return alone, [alone.run(sample) for sample in samples]


def _drawn(model: Model, random: np.random.Generator) -> dict[str, Array]:
    return {name: spec.draw(random) for name, spec in model.inputs.items()}


def _ended(run: Callable[[Path], _End]) -> _End:
    with TemporaryDirectory(prefix="pairs_") as name:
        try:
            return run(Path(name))
        except BuildFailed as error:
            found = re.findall(r"error: .*", str(error))
            return _End(verdict="foreign", reason=f"BuildFailed: {(found or [str(error)])[0][:200]}")
        except TvmExtError as error:
            verdict = "foreign" if _FOREIGN.search(str(error)) else "refused"
            if _NO_INT8_FORM in str(error):
                return _End(verdict="stays float")
            return _End(verdict=verdict, reason=f"{type(error).__name__}: {error}"[:400])
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            return _End(verdict="foreign", reason=f"{_first_line(error)} ({place})")


def _in_floats(folder: Path, model: Model, samples: Sequence[Arrays], expected: Sequence[Sequence[Array]]) -> _End:
    """Return the verdict on the model as it is."""
    mod = load(model.source, states={})
    names = PortNames.read(mod)
    _, compiled = compile_model(mod, Platform.load("host"), BuildOptions(io="caller", name="m"))
    run = _runner(folder, compiled)
    worst = 0.0
    for sample, wanted in list(zip(samples, expected, strict=True))[:_NUM_SAMPLES]:
        results = run(_named(names.inputs, sample))
        found = [results[name] for name in names.outputs]
        for mine, theirs in zip(found, wanted, strict=True):
            said, off = _difference(mine, theirs)
            if said:
                return _End(verdict="wrong", reason=said + _second_opinion(model, sample, found), figure=off)
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


def _in_int8(folder: Path, model: Model, samples: Sequence[Arrays], expected: Sequence[Sequence[Array]]) -> _End:
    """Return the verdict on the model quantized here, by the signal-to-noise ratio of its dequantized outputs.

    What rounding the inputs and the outputs to their scales costs alone is known: the runtime itself computes on the
    rounded inputs. The package may be 12 dB worse for its weights and inner tensors, or has 20 dB anyway.
    """
    mod = load(model.source, states={})
    names = PortNames.read(mod)
    options = BuildOptions(io="caller", name="m", quantize="int8")
    _, compiled = compile_model(mod, Platform.load("host"), options, [_named(names.inputs, s) for s in samples])
    run = _runner(folder, compiled)
    inputs = {port.source: port for port in compiled.interface.inputs}
    outputs = {port.source: port for port in compiled.interface.outputs}
    least = np.inf
    for sample, wanted in list(zip(samples, expected, strict=True))[:_NUM_SAMPLES]:
        stored = {name: _stored(array, inputs.get(name)) for name, array in _named(names.inputs, sample).items()}
        results = run(stored)
        rounded = {
            given: _real(stored[name], inputs.get(name)).reshape(array.shape)
            for (given, array), name in zip(sample.items(), _order(names.inputs, sample), strict=True)
        }
        ideal = model.run(rounded)
        for name, theirs, best in zip(names.outputs, wanted, ideal, strict=True):
            port = outputs.get(name)
            mine = _real(results[name], port)
            if mine.shape != theirs.shape:
                return _End(verdict="wrong", reason=f"{list(mine.shape)} instead of {list(theirs.shape)}")
            if theirs.dtype.kind != "f":
                if mine.size and float(np.mean(mine == best)) < _MATCH and float(np.mean(mine == theirs)) < _MATCH:
                    return _End(verdict="wrong", reason=f"{np.mean(mine == best):.0%} of integers agree")
                continue
            reached, possible = _snr_db(mine, theirs), _snr_db(_real(_stored(best, port), port), theirs)
            if reached < _ENOUGH_DB and reached < possible - _LOST_DB:
                said = f"{reached:.1f} dB, where rounding inputs and outputs alone gives {possible:.1f} dB"
                return _End(verdict="wrong", reason=said, figure=reached)
            least = min(least, reached)
    return _End(verdict="equal", figure=float(min(least, 200.0)))


def _runner(folder: Path, compiled: Compiled) -> Callable[[Arrays], Arrays]:
    sources = compiled.sources()
    for file_name, text in sources.items():
        (folder / file_name).write_text(text, encoding="utf-8")
    units = sorted(file_name for file_name in sources if file_name.endswith(".c"))
    library = build_library(folder, "".join(f'#include "{unit}"\n' for unit in units))
    return lambda given: call_compiled(library, compiled.interface, given)


def _order(names: Sequence[str], sample: Arrays) -> list[str]:
    """Return the model's input names in the sample's order: its own, or those that stand at the same positions."""
    if set(names) <= set(sample):
        return list(sample)
    return list(names)


def _named(names: Sequence[str], sample: Arrays) -> dict[str, Array]:
    return dict(zip(_order(names, sample), sample.values(), strict=True))


def _stored(array: Array, port: Port | None) -> Array:
    """Return floats as a port stores them."""
    if port is None or port.quantization is None or array.dtype.kind != "f":
        return array
    scale, zero_point = port.quantization.scale, port.quantization.zero_point
    limits = np.iinfo(port.dtype)
    return np.clip(np.rint(array.astype("float64") / scale) + zero_point, limits.min, limits.max).astype(port.dtype)


def _real(array: Array, port: Port | None) -> Array:
    if port is None or port.quantization is None or array.dtype.kind == "f":
        return array
    return ((array.astype("float64") - port.quantization.zero_point) * port.quantization.scale).astype("float32")


def _snr_db(found: Array, expected: Array) -> float:
    signal = float(np.mean(np.square(expected.astype("float64")))) if expected.size else 0.0
    noise = float(np.mean(np.square(found.astype("float64") - expected.astype("float64")))) if expected.size else 0.0
    if noise == 0 or not np.isfinite(signal):
        return 200.0
    return float(10 * np.log10(signal / noise)) if signal else -200.0


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
