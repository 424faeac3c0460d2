"""``python -m utterwire_server``: the same as ``utterwire-server``."""

import sys

from utterwire_server.cli import main

if __name__ == "__main__":
    sys.exit(main())
