"""`python -m capsule` is `capsule`."""

import sys

from capsule.cli import main

sys.exit(main())
