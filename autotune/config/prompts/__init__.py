"""Prompts from files and data sets in the formats that people have them in.

Rule: a format is one file here and one row of `FORMATS`; nothing in this folder sends, counts or
loads anything but prompts.
"""

from autotune.config.prompts.hub import HubDataset, read_hub
from autotune.config.prompts.reading import Prompts, read_prompts

__all__ = ["HubDataset", "Prompts", "read_hub", "read_prompts"]
