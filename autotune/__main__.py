"""`python -m autotune` is the console script."""

from autotune.cli import main

main()
