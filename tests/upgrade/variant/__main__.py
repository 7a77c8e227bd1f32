"""Run a node of version 2: arguments as of `warren-broker`."""

from __future__ import annotations

import sys

from upgrade.variant.install import install

install()

from warren_broker.__main__ import main  # noqa: E402  (not before it is version 2)

sys.exit(main())
