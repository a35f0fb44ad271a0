"""`python -m tvm_ext` is the command `tvm-ext`; signals wait from its first line on until they are watched."""

from __future__ import annotations

import signal

if hasattr(signal, "pthread_sigmask"):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})

from tvm_ext.core.processes.supervise import supervised


def main() -> None:
    """Entry point of the `tvm-ext` command."""
    supervised(_work)


def _work() -> None:
    from tvm_ext.command_line.main import run

    run()


if __name__ == "__main__":
    main()
