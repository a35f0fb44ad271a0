"""Our code beside other compilers' and runtimes', on the same models in one run.

    python benchmarks/side_by_side.py
    python benchmarks/side_by_side.py kws_fp32 mcunet_320k_int8 --again
    python benchmarks/side_by_side.py --missing

Measures the networks of `benchmarks/zoo.py`, and kws and resnet of MLPerf Tiny where `../shared/models` holds them.
Peers are those that the extra `bench` installs; without it they are skipped, and the table says so. Each model is
written when it is done: a run that was interrupted goes on where it stopped, and what no source changed for is not
measured again (`--again` does; `--missing` measures only models that have no record at all).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.measure import emx, ours  # noqa: E402
from benchmarks.measure.commit import commit  # noqa: E402
from benchmarks.measure.host import wall_times_us  # noqa: E402
from benchmarks.measure.model import SHARED, Model, models  # noqa: E402
from benchmarks.measure.peers import installed, litert_call, onnxruntime_call  # noqa: E402
from benchmarks.measure.published import read_published  # noqa: E402
from benchmarks.measure.records import Record, Row, read_records, state_of, write_records  # noqa: E402
from benchmarks.measure.tables import markdown  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
MAX_EMX_WEIGHTS_BYTES = 4 << 20  # it needs minutes for more, and the board's flash holds no more


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for; write the JSON after each model, and the table at the end."""
    options = _options(arguments)
    records = read_records(options.results)
    with TemporaryDirectory(prefix="tvm_ext_bench_") as name:
        for model_name, load_model in models(ROOT, Path(name), options.models):
            if options.missing and model_name in records:
                continue
            model = load_model()
            state = state_of(ROOT, model.proto.SerializeToString(deterministic=True))
            known = records.get(model_name)
            if known is None or known.state != state or options.again:
                print(model_name, flush=True)
                folder = Path(name) / model_name
                folder.mkdir()
                records[model_name] = measure(model, folder, state)
                write_records(options.results, _in_order(records))
    table = markdown(_in_order(records), read_published(ROOT / "benchmarks" / "published.toml"))
    options.results.with_suffix(".md").write_text(table, encoding="utf-8")


def measure(model: Model, folder: Path, state: str) -> Record:
    """Every system on every platform, then all host times in turn."""
    rows = [ours.on_board(model, "cortex_m4", folder), ours.on_board(model, "cortex_m55", folder)]
    if rows[-1].skipped:  # the same processor with more flash
        rows.append(ours.on_board(model, "always_on", folder))
    host = ours.on_host(model, folder)
    calls: dict[str, Callable[[], object]] = {ours.SYSTEM: host.call}
    host_rows = [host.row]
    version = installed("emx-onnx-cgen")
    program, reason = _emx(model, folder, version)
    if program is None:
        rows.append(Row(system="emx-onnx-cgen", platform="cortex_m4", skipped=reason))
    else:
        rows.append(program.on_board("cortex_m4", folder))
        row, calls[program.system] = program.on_host(folder)
        host_rows.append(row)
    runtime = f"onnxruntime {installed('onnxruntime')}"
    calls[runtime] = onnxruntime_call(model)
    host_rows.append(Row(system=runtime, platform="host"))
    if model.tflite and (litert := installed("ai-edge-litert")):
        calls[f"LiteRT {litert}"] = litert_call(model)
        host_rows.append(Row(system=f"LiteRT {litert}", platform="host"))
    times = wall_times_us(calls)
    host_rows = [replace(row, wall_us=times[row.system]) for row in host_rows]
    return Record(model=model.name, macs=host.macs, state=state, commit=commit(), rows=(*rows, *host_rows))


def _emx(model: Model, folder: Path, version: str | None) -> tuple[emx.EmxProgram | None, str]:
    if version is None:
        return None, "not installed; pip install tvm-ext[bench]"
    if model.path.stat().st_size > MAX_EMX_WEIGHTS_BYTES:
        return None, f"larger than {MAX_EMX_WEIGHTS_BYTES} B: not tried"
    try:
        return emx.compile_emx(model, folder / "emx", version), ""
    except emx.Refused as error:
        return None, str(error)


def _in_order(records: dict[str, Record]) -> dict[str, Record]:
    order = [*SHARED, *zoo.names()]
    return dict(sorted(records.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names; default: all")
    parser.add_argument("--again", action="store_true", help="measure also what is known")
    parser.add_argument("--missing", action="store_true", help="measure only models without a record")
    parser.add_argument("--results", type=Path, default=RESULTS / "side_by_side.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
