"""Why a study came out as it did, and what to change next."""

from autotune.core.diagnosis.explaining import DIAGNOSES, Explanation, explain
from autotune.core.diagnosis.next_change import Change
from autotune.core.diagnosis.table import Diagnosis, Finding

__all__ = ["DIAGNOSES", "Change", "Diagnosis", "Explanation", "Finding", "explain"]
