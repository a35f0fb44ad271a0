"""Every error a user can meet. Each message says what, where, the limit, and the way out."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_ext.core.printable import printable_lines


class TvmExtError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback.

    Messages name files and tensors, which are an author's own: as text they hold no character that controls a terminal.
    """

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class BadPlatform(TvmExtError):
    """A platform description that cannot be used: unknown name, broken file, impossible value."""


class BadOptions(TvmExtError):
    """Build options that contradict each other, the model, or the platform."""


class UnknownOption(BadOptions, TypeError):
    """A keyword that is no option of a build; names the one that was meant. Also a TypeError, as Python raises it."""


class BadBundle(TvmExtError):
    """A bundle's file that cannot be used: unknown key, impossible value, names or paths that cannot be."""


class BadModel(TvmExtError):
    """A model file that cannot be read: missing, not of its format, truncated, unsafe."""


class UnsupportedModel(TvmExtError):
    """A well-formed model that holds something no stage can compile; names every such operator."""


class BadInput(TvmExtError):
    """Arrays handed to a run that do not match the model's inputs."""


class DoesNotFit(TvmExtError):
    """The plan needs more bytes of a memory than the platform has.

    nearest_bytes: the nearest budget of the default memory that can be met; None where that is not what is too small.
    least_bytes: method that was tried -> the fewest bytes it came to there.
    """

    def __init__(
        self, message: str, nearest_bytes: int | None = None, least_bytes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.nearest_bytes: int | None = nearest_bytes
        self.least_bytes: Mapping[str, int] = least_bytes or {}


class PlanRejected(TvmExtError):
    """The independent validator found a memory plan wrong. A defect of the compiler, never of the model."""


class ExtensionFailed(TvmExtError):
    """Code of another distribution, which an entry point brings, failed or gave what cannot be used."""


class DefectNotice(UserWarning):
    """A defect of the compiler that it works around; says what to report."""


class MissingTool(TvmExtError):
    """A program outside Python is needed and not there: a C compiler, QEMU."""


class OutOfMemory(TvmExtError):
    """Memory ran out: below a limit of the process, such as `ulimit -v` sets, or on the whole machine."""


class BuildFailed(TvmExtError):
    """A C compiler or linker refused generated code; carries its output."""


class RunFailed(TvmExtError):
    """A package did not run to its end on the host or on a board."""


class NotReady(RunFailed):
    """A run of a model over a window of time that is not full yet: it needs more runs behind a reset."""


class ChildFailed(RunFailed):
    """A function in a process of its own did not come back: a crash, a limit of time or memory, a foreign exception."""


class ChildExpired(ChildFailed):
    """A function in a process of its own took longer than it may: it would again."""


class ChildLost(ChildFailed):
    """A process with a function in it is gone: by a signal, or by leaving; another one may come back."""


class WorkerRefused(TvmExtError):
    """A worker of a service computes with other code or libraries than this process; its results are not taken."""


class VerificationFailed(TvmExtError):
    """A package's outputs differ from the reference by more than the limit."""


class BadPackage(TvmExtError):
    """A folder that is not a package of ours, a new one that does not read back, an output folder that cannot be
    written."""
