"""`weir` with another number for a constant, as a process: the first words are module, name and number."""

import sys
from importlib import import_module
from unittest.mock import patch

from weir.cli import main


def at(module: str, name: str, number: int) -> tuple[str, ...]:
    """How Python finds it (`Program`)."""
    return __file__, module, name, str(number)


if __name__ == "__main__":
    _module, _name, _number = (sys.argv.pop(1) for _ in range(3))
    with patch.object(import_module(_module), _name, int(_number)):
        sys.exit(main())
