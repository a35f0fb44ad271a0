"""Write the reference pages that are generated from the code.

    python documentation/write.py
    python documentation/write.py --check

With `--check` nothing is written, and the exit status is 1 if a page does not match the code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from documentation import (  # noqa: E402
    boards,
    c_interface,
    commands,
    errors_catalogue,
    platform_keys,
    python_names,
    report_keys,
    supported_operators,
)

PAGES: Mapping[str, Callable[[], str]] = {
    boards.PATH: boards.boards_page,
    c_interface.PATH: c_interface.c_interface_page,
    commands.PATH: commands.commands_page,
    errors_catalogue.PATH: errors_catalogue.errors_page,
    platform_keys.PATH: platform_keys.platform_keys_page,
    python_names.PATH: python_names.python_page,
    report_keys.PATH: report_keys.report_keys_page,
    supported_operators.PATH: supported_operators.supported_operators_page,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    stale = 0
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(
            f"{name}: {'is not what the code says; run python documentation/write.py' if options.check else 'written'}"
        )
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
