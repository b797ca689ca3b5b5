"""What can be known before a GPU minute is spent: files, configurations, arithmetic.

Rule: pure rules over Facts; only gathering looks at the disk, and it loads no model. Neither vllm
nor torch nor transformers is imported.
"""

from autotune.preflight.facts import Device, Facts
from autotune.preflight.findings import Finding, Severity, kept, ordered, refused
from autotune.preflight.gathering import gather
from autotune.preflight.rules import RULES, findings

__all__ = [
    "RULES",
    "Device",
    "Facts",
    "Finding",
    "Severity",
    "findings",
    "gather",
    "kept",
    "ordered",
    "refused",
]
