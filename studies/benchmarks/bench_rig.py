"""What a benchmark launches with: the product's own runner, in a folder of the benchmark's.

Rule: nothing is replaced but the place where the launches are kept, and nobody is told of them.
"""

from pathlib import Path

from autotune.core.study import StudySpec
from autotune.ports import Engine, LoadGenerator, find, names
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig


def bench_rig(spec: StudySpec, root: Path) -> Rig:
    """The rig of this study, its launches under `root`."""
    engine: Engine = find("engines", spec.target.engine)
    generators: dict[str, LoadGenerator] = {n: find("loadgens", n) for n in names("loadgens")}
    return Rig(
        spec=spec,
        engine=engine,
        load_generators=generators,
        paths=StudyPaths(root=root, name=spec.name),
        fingerprint="",
        notify=lambda event: None,
    )
