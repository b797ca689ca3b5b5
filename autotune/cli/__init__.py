"""The command line: verbs joined from the parts below; the only place that prints.

Rule: heavy packages (mlflow, matplotlib, pandas, optuna) are imported by the verb that needs them,
so that `autotune --help` answers at once.
"""

from autotune.cli.app import main

__all__ = ["main"]
