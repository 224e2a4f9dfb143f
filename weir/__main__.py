"""`python -m weir`: what `weir up` starts its parts with, whatever the PATH."""

import sys

from weir.cli import main

sys.exit(main())
