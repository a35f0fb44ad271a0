"""The page of the C interface: the purpose of each function of a package, and examples of generated headers."""

from __future__ import annotations

from pathlib import Path

from documentation.markdown import page, table

PATH = "docs/reference/c_interface.md"
EXPECTED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "expected"
_FUNCTIONS = (
    ("<model>_<input>()", "place of an input; write it before each run", "`--io arena`"),
    ("<model>_<output>()", "place of an output; read it after a run", "`--io arena`"),
    ("<model>_input(), <model>_output()", "the same of a single input, a single output", "`--io arena`"),
    ("<model>_run(…)", "one inference", "always"),
    ("<model>_status, <model>_ok", "what functions answer, as wide as `int32_t`; 0 where they are done", "always"),
    ("<MODEL>_<NAME>_SIZE, <MODEL>_<NAME>_BYTES", "elements and bytes of an input or output", "always"),
    ("<MODEL>_ARENA_BYTES, <MODEL>_ARENA_BYTES_<MEMORY>", "bytes of arenas and states: all, of a memory", "always"),
    ("<MODEL>_MODEL_SHA256", "digest of the model's file, as a string", "always"),
    ("<model>_quantize_<name>(…)", "element of a real number: rounded, within the type", "quantized inputs, outputs"),
    ("<model>_dequantize_<name>(…)", "real number that an element stands for", "quantized inputs, outputs"),
    ("<model>_io", "functions of yours that give and take rows", "`--io stream`"),
    ("<model>_reset()", "states as at the beginning; before the first run", "models with state"),
    ("<model>_state_place(), <model>_state_bytes", "what runs keep, for `memcpy`", "models with state"),
    ("<model>_not_reset", "answer of a run that finds no state it knows", "models with state"),
    ("<model>_not_ready", "answer of a run before its window is full", "`--new-frames`"),
    (
        "<model>_context, <model>_context_bytes",
        "arena and states, first argument",
        "`--context caller`",
    ),
    (
        "<model>_put(), <model>_take()",
        "hand an input to a pipeline, take an output of it",
        "`--placement-objective throughput`",
    ),
    ("<MODEL>_PROFILE, <model>_profile.h", "hooks around each layer", "`--hooks`"),
)
_HEADERS = (
    ("Inputs and outputs in the arena", "float_network", "`--io arena`, which is the default."),
    ("Inputs and outputs with the caller", "branching_network", "`--io caller`: pointers at each run."),
    (
        "Rows through functions of yours",
        "streamed_network",
        "`--io stream`: [row-by-row inputs](../streaming.md).",
    ),
)
_INTRO = """\
A package has one public header, `<model>.h`: C11, `extern "C"` for C++, and no types of its own unless a table says so.
Nothing allocates, prints or blocks. Every function that can fail returns `<model>_status`, whose values the
header lists. A package's own README shows the calls for its own inputs and outputs."""


def c_interface_page() -> str:
    rows = [(" ".join(f"`{name}`" for name in names.split(", ")), *rest) for names, *rest in _FUNCTIONS]
    headers = [f"## {title}\n\n{text}\n\n```c\n{_header(name)}```" for title, name, text in _HEADERS]
    return page("The C interface", _INTRO, table(("name", "meaning", "where"), rows), _CALL, *headers)


_CALL = """\
## Files of a package

| file | holds |
| --- | --- |
| `<model>.h` | the functions that firmware calls |
| `<model>.c` | layers, and `<model>_run` as their schedule |
| `<model>_memory.h`, `<model>_memory.c` | arenas: each tensor at its offset, proved by `_Static_assert` |
| `<model>_weights.h`, `<model>_weights.c` | constants; more than 256 KiB are in several files: `<model>_weights_2.c` |
| `tvm_ext_*.h` | loops that layers share |
| `<model>_selftest*`, `<model>_vectors.*` | the self-test; `-DTVM_EXT_SELFTEST_DRAWN=8u` draws 8 vectors at most |
| `board/` | start-up code, linker script and firmware for the board in QEMU |
| `Makefile`, `CMakeLists.txt` | build files |
| `report.json`, `trace.json`, `manifest.json` | decisions and figures; operators and their lines of C; files |

Arenas are not to be written beside these functions; with the default `--context static` a model is not reentrant."""


def _header(name: str) -> str:
    """Return the header of a golden package without its beginning and end, which are the same in every header."""
    text = (EXPECTED / name / f"{name}.h").read_text(encoding="utf-8")
    begin, end = text.index("/* Size, shape and type"), text.index("#ifdef __cplusplus\n}")
    return text[begin:end].rstrip() + "\n"
