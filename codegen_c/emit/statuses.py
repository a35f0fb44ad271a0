"""The type of what a package's functions answer, for its header: an enumeration with a sentence for each value."""

from __future__ import annotations

from codegen_c.c_text.lines import comment_block
from codegen_c.c_text.text import block
from codegen_c.program.interface import Interface
from codegen_c.program.statuses import EMPTY, FULL, MISALIGNED, NOT_READY, NOT_RESET


def emit_statuses(interface: Interface) -> str:
    """Definition of `<model>_status`. Its extremes make it as wide as int32_t, and signed, for every compiler."""
    known = [(interface.ok, 0, "done")]
    if interface.state_bytes:
        known += [(interface.not_reset, NOT_RESET, f"no state of this build is there: call {interface.reset} first")]
    if interface.warm_up_runs:
        known += [(interface.not_ready, NOT_READY, "the window is not full yet: outputs mean nothing")]
    if interface.checks_alignment:
        alignment = interface.context_alignment_name
        known += [(interface.misaligned, MISALIGNED, f"the instance does not lie at a multiple of {alignment}")]
    if interface.is_pipeline:
        known += [(interface.full, FULL, "outputs have to be taken before another input is put")]
        known += [(interface.empty, EMPTY, "nothing is under way, so there are no outputs")]
    values = [f"{name} = {number}, /* {note} */" for name, number, note in known]
    values += [f"{interface.status_type}_least = INT32_MIN, /* both make the type as wide as int32_t */"]
    values += [f"{interface.status_type}_most = INT32_MAX"]
    note = "Answers of a run."
    if interface.io == "stream":
        note = "Answers of a run. Others are what a function of the application answered."
    return f"{comment_block([note])}\ntypedef enum {{\n{block(values)}\n}} {interface.status_type};\n"
