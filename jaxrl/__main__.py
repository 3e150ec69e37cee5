"""`python -m jaxrl` is the `jaxrl` command."""

import sys

from jaxrl.cli.main import main

sys.exit(main())
