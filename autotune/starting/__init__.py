"""The first candidates file for a target: what is at hand is looked at, nothing is downloaded."""

from autotune.starting.proposals import Proposal, propose
from autotune.starting.reading import beside, cached, has_package, read_target
from autotune.starting.writing import Start, render

__all__ = [
    "Proposal",
    "Start",
    "beside",
    "cached",
    "has_package",
    "propose",
    "read_target",
    "render",
]
