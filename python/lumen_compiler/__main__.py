"""The program: ``python -m lumen_compiler train ..`` is ``lumen train ..``."""
import sys

from . import _native


def main() -> None:
    """Ends with the program's exit code."""
    sys.stdout.flush()
    sys.exit(_native.main(["lumen", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
