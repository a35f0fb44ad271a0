"""Every error that a user can meet. Each message says what, where, the limit, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tvm_ext.core.printable import printable_lines


class TvmExtError(Exception):
    """Base of all errors that are raised on purpose. The command line prints them without a traceback.

    Messages contain names of files and tensors, which an untrusted author may choose. As text they contain no character
    that controls a terminal.
    """

    way_out: ClassVar[str] = ""
    """What a user can do about the error, as Markdown with links to pages in `docs/`."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class BadPlatform(TvmExtError):
    """A platform description that cannot be used, for an unknown name, a broken file or an impossible value."""

    way_out = (
        "Correct the key that the message names: [keys of a platform](reference/platform_keys.md), [your own "
        "board](howto/board.md)."
    )


class BadOptions(TvmExtError):
    """Build options that contradict each other, the model, or the platform."""

    way_out = (
        "Remove one of the two options, or choose a value that the message allows: [commands and "
        "options](reference/commands.md)."
    )


class UnknownOption(BadOptions, TypeError):
    """A keyword that is not an option of a build. The message suggests the nearest option.

    It is also a TypeError, as Python raises.
    """

    way_out = "Write the option that the message names: [commands and options](reference/commands.md)."


class BadBundle(TvmExtError):
    """A bundle file that cannot be used, for an unknown key, an impossible value, or impossible names or paths."""

    way_out = "Correct the key that the message names: [bundles](bundles.md)."


class BadModel(TvmExtError):
    """A model file that cannot be read, because it is missing, truncated, unsafe or in another format."""

    way_out = "Write the file again with the tool that created it; the message says where reading stopped."


class UnsupportedModel(TvmExtError):
    """A well-formed model with operators that no stage can compile. The message names all of them."""

    way_out = (
        "Export the model another way, or write the operator in C: [my model is refused](howto/refused.md), "
        "[supported operators](reference/supported_operators.md)."
    )


class BadInput(TvmExtError):
    """Arrays for a run that do not match the model's inputs."""

    way_out = "Give arrays by the model's own names, in the shape and type that the message states."


class DoesNotFit(TvmExtError):
    """The plan needs more bytes of a memory than the platform has.

    nearest_bytes: the nearest budget of the default memory that can be met; None where another memory is too small.
    least_bytes: the fewest bytes that each tried method reached there.
    """

    way_out = (
        "Quantize it (`--quantize int8`), give it more memory (`--ram`), or choose a platform with a second memory: "
        "[my model does not fit](howto/does_not_fit.md)."
    )

    def __init__(
        self, message: str, nearest_bytes: int | None = None, least_bytes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.nearest_bytes: int | None = nearest_bytes
        self.least_bytes: Mapping[str, int] = least_bytes or {}


class PlanRejected(TvmExtError):
    """The independent validator rejected a memory plan. This is a defect of the compiler, never of the model."""

    way_out = "A defect of the compiler: report it with the model. Nothing wrong was written."


class ExtensionFailed(TvmExtError):
    """Code of another distribution, which an entry point provides, failed or returned an unusable result."""

    way_out = "Fix or uninstall the distribution that the message names: [extensions](inside.md#extensions)."


class DefectNotice(UserWarning):
    """A defect of the compiler that it works around. The text says what to report."""


class SystemNotice(UserWarning):
    """Something that this system does not support, and what that means for the user."""


class MissingTool(TvmExtError):
    """A program outside Python that is needed and not installed: a C compiler, QEMU."""

    way_out = "Install the program that the message names; on Debian and Ubuntu, `make boards` installs all."


class OutOfMemory(TvmExtError):
    """Memory ran out, under a limit of the process such as `ulimit -v`, or on the whole machine."""

    way_out = "Raise the limit that the message names, or close other programs."


class BuildFailed(TvmExtError):
    """A C compiler or linker refused generated code. The message contains its output."""

    way_out = (
        "Read the compiler's own message, which follows. Usually the compiler does not know a flag or a section, or a "
        "memory is too small for the code."
    )


class RunFailed(TvmExtError):
    """A package did not run to its end on the host or on a board."""

    way_out = "Read the program's own message, which follows. On boards, first check the stack in the platform's file."


class NotReady(RunFailed):
    """A run of a model over a window of time that is not full yet. It needs more runs after a reset."""

    way_out = "Pass more frames: [a window becomes a stream](state.md#a-window-becomes-a-stream)."


class ChildFailed(RunFailed):
    """A function in a separate process failed: by a crash, a limit of time or memory, or an unexpected exception."""

    way_out = "Raise the limit that the message names, or report the crash with the model."


class ChildExpired(ChildFailed):
    """A function in a separate process exceeded its time limit. A second attempt would do the same."""

    way_out = "`TVM_EXT_PATIENCE=10` allows ten times as much time."


class ChildLost(ChildFailed):
    """A separate process with a function ended by a signal or by exiting. A new process may succeed."""

    way_out = "Run the command again; if the process is lost again, report it with the model."


class WorkerRefused(TvmExtError):
    """A worker of a service has other code or libraries than this process, so its results are not used."""

    way_out = "Install the same tvm_ext and libraries on the machine of the named worker, and restart the worker."


class VerificationFailed(TvmExtError):
    """A package's outputs differ from the reference by more than the limit."""

    way_out = "Do not use the outputs. [Verification](verification.md) says what is compared with what."


class BadPackage(TvmExtError):
    """A folder that is not a package of tvm_ext, a package that cannot be read, or an unwritable output folder."""

    way_out = "Compile the model again, or name another folder: files that tvm_ext did not write are never replaced."
