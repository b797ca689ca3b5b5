"""candidates.yaml: what it may say, how it is read, and its reference.

Rule: whoever uses a study asks `load`; nobody else knows that the file is YAML.
"""

from autotune.config.fitting import fit
from autotune.config.loader import LoadedFile, Tracking, load
from autotune.config.schema_json import json_schema

__all__ = ["LoadedFile", "Tracking", "fit", "json_schema", "load"]
