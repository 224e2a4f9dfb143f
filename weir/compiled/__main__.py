"""`python -m weir.compiled`: compiles what each request passes at a proxy."""

import sys

from weir.compiled import main

sys.exit(main(sys.argv[1:]))
