"""``python -m utterwire_client`` is ``utterwire``."""

import sys

from utterwire_client.cli import main

sys.exit(main())
