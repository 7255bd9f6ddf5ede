"""`python -m benchmarks.truth OUT.jsonl`."""

import sys

from .measure import main

sys.exit(main())
