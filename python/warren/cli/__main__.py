"""`python -m warren.cli`: the same as the command `warren`."""

from __future__ import annotations

from warren.cli import main

if __name__ == "__main__":
    main()
