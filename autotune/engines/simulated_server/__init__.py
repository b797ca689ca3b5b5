"""A program that answers like vLLM's OpenAI server and runs no model.

`python -m autotune.engines.simulated_server` takes vLLM's flags, speaks its HTTP protocol, writes
its log lines and keeps its counters, at the pace of a cost model and with the acceptance of a
profile, both given by a world file (world.py). It imports nothing of autotune: what the tuner
believes about an engine must not leak into the engine that it is tested against.
"""
