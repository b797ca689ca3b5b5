"""autotune: the best speculative-decoding configuration for a vLLM deployment, by measuring it."""

__version__ = "0.1.0"
