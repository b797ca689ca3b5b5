"""The simulated engine: the same flags, endpoints and counters, only arithmetic behind them.

For tests and rehearsals; nothing counts as measured that was shown on it alone.
"""

from autotune.engines.vllm import VllmEngine
from autotune.ports import Engine

PLUGIN: Engine = VllmEngine(module=("-m", "autotune.engines.simulated_server"), real=False)
