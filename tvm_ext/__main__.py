"""`python -m tvm_ext` is the command `tvm-ext`; little is imported before signals are watched."""

from __future__ import annotations

from tvm_ext.core.supervise import supervised


def main() -> None:
    """Entry point of the `tvm-ext` command."""
    supervised(_work)


def _work() -> None:
    from tvm_ext.cli import app

    app()


if __name__ == "__main__":
    main()
