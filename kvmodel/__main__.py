"""Entry point of `kvmodel` and `python -m kvmodel`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. The version is answered before anything heavy is imported."""
    if sys.argv[1:] == ["--version"]:
        from kvmodel.version import __version__

        print(f"kvmodel {__version__}")
        return
    from kvmodel.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
