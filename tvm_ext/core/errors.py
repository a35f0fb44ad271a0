"""Every error a user can meet. Each message says what, where, the limit, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tvm_ext.core.printable import printable_lines


class TvmExtError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback.

    Messages name files and tensors, which are an author's own: as text they hold no character that controls a terminal.
    """

    way_out: ClassVar[str] = ""
    """What a user does about it, as Markdown; links lead to pages in `docs/`."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class BadPlatform(TvmExtError):
    """A platform description that cannot be used: unknown name, broken file, impossible value."""

    way_out = (
        "Mend the key that is named: [keys of a platform](reference/platform_keys.md), [your own "
        "board](howto/board.md)."
    )


class BadOptions(TvmExtError):
    """Build options that contradict each other, the model, or the platform."""

    way_out = (
        "Take one of the two options back, or a value that the message allows: [commands and "
        "options](reference/commands.md)."
    )


class UnknownOption(BadOptions, TypeError):
    """A keyword that is no option of a build; names the one that was meant. Also a TypeError, as Python raises it."""

    way_out = "Write the option that the message names: [commands and options](reference/commands.md)."


class BadBundle(TvmExtError):
    """A bundle's file that cannot be used: unknown key, impossible value, names or paths that cannot be."""

    way_out = "Mend the key that is named: [bundles](bundles.md)."


class BadModel(TvmExtError):
    """A model file that cannot be read: missing, not of its format, truncated, unsafe."""

    way_out = "Write the file again by the tool that made it; the message says where reading stopped."


class UnsupportedModel(TvmExtError):
    """A well-formed model that holds something no stage can compile; names every such operator."""

    way_out = (
        "Export the model another way, or write the operator in C: [my model is refused](howto/refused.md), "
        "[supported operators](reference/supported_operators.md)."
    )


class BadInput(TvmExtError):
    """Arrays handed to a run that do not match the model's inputs."""

    way_out = "Arrays under the model's own names, in the shape and type that the message gives."


class DoesNotFit(TvmExtError):
    """The plan needs more bytes of a memory than the platform has.

    nearest_bytes: the nearest budget of the default memory that can be met; None where that is not what is too small.
    least_bytes: method that was tried -> the fewest bytes it came to there.
    """

    way_out = (
        "Quantize it (`--quantize int8`), give it more of the memory (`--ram`), or a platform with a second one: "
        "[my model does not fit](howto/does_not_fit.md)."
    )

    def __init__(
        self, message: str, nearest_bytes: int | None = None, least_bytes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.nearest_bytes: int | None = nearest_bytes
        self.least_bytes: Mapping[str, int] = least_bytes or {}


class PlanRejected(TvmExtError):
    """The independent validator found a memory plan wrong. A defect of the compiler, never of the model."""

    way_out = "A defect of the compiler: report it with the model. Nothing wrong was written."


class ExtensionFailed(TvmExtError):
    """Code of another distribution, which an entry point brings, failed or gave what cannot be used."""

    way_out = "Mend or uninstall the distribution that is named: [extensions](inside.md#extensions)."


class DefectNotice(UserWarning):
    """A defect of the compiler that it works around; says what to report."""


class SystemNotice(UserWarning):
    """What this system has no means for, and what that means for its user."""


class MissingTool(TvmExtError):
    """A program outside Python is needed and not there: a C compiler, QEMU."""

    way_out = "Install the program that is named; `make boards` does so on Debian and Ubuntu."


class OutOfMemory(TvmExtError):
    """Memory ran out: below a limit of the process, such as `ulimit -v` sets, or on the whole machine."""

    way_out = "Raise the limit that is named, or end other programs."


class BuildFailed(TvmExtError):
    """A C compiler or linker refused generated code; carries its output."""

    way_out = (
        "The compiler's own words follow: a flag or a section that it does not know, or memory that is too "
        "small for the code."
    )


class RunFailed(TvmExtError):
    """A package did not run to its end on the host or on a board."""

    way_out = "The program's own words follow; on boards, look at the stack of the platform's file first."


class NotReady(RunFailed):
    """A run of a model over a window of time that is not full yet: it needs more runs behind a reset."""

    way_out = "Hand in more frames: [a window becomes a stream](state.md#a-window-becomes-a-stream)."


class ChildFailed(RunFailed):
    """A function in a process of its own did not come back: a crash, a limit of time or memory, a foreign exception."""

    way_out = "Raise the limit that is named, or report the crash with the model."


class ChildExpired(ChildFailed):
    """A function in a process of its own took longer than it may: it would again."""

    way_out = "`TVM_EXT_PATIENCE=10` gives ten times as much time."


class ChildLost(ChildFailed):
    """A process with a function in it is gone: by a signal, or by leaving; another one may come back."""

    way_out = "Run it again; if it is lost again, report it with the model."


class WorkerRefused(TvmExtError):
    """A worker of a service computes with other code or libraries than this process; its results are not taken."""

    way_out = "Install the same tvm_ext and libraries where the named worker runs, and start it again."


class VerificationFailed(TvmExtError):
    """A package's outputs differ from the reference by more than the limit."""

    way_out = "The outputs are not to be used. [Verification](verification.md) says what is compared with what."


class BadPackage(TvmExtError):
    """A folder that is not a package of ours, a new one that does not read back, an output folder that cannot be
    written."""

    way_out = "Compile the model again, or name another folder: nothing is written over what is not ours."
