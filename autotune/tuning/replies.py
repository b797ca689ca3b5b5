"""The replies of a study's records, from the samples of its launches; and the key of their marks.

Rules: the records decide which passes count, the samples only say more of them; a launch whose
samples are gone or damaged costs its own part of a comparison and nothing else.
"""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.core.replies import KEY_BYTES, Reply, ReplyPrint
from autotune.core.trial import Measurement, Record
from autotune.files import write_bytes
from autotune.tuning import samples
from autotune.tuning.paths import StudyPaths

log = logging.getLogger(__name__)


def reply_key(paths: StudyPaths) -> bytes:
    """The study's key; made, for its owner alone, when the study has none yet."""
    if not paths.reply_key.exists():
        write_bytes(paths.reply_key, secrets.token_bytes(KEY_BYTES), private=True)
    return paths.reply_key.read_bytes()[:KEY_BYTES]


def replies_of(paths: StudyPaths, records: Sequence[Record]) -> list[Reply]:
    """Every reply of every valid pass in the records."""
    kept: dict[str, list[dict[str, Any]]] = {}
    found: list[Reply] = []
    for record in records:
        if record.measurement is None:
            continue
        if record.launch_id not in kept:
            kept[record.launch_id] = _rows(paths.launches / record.launch_id)
        found += _replies(record, record.measurement, kept[record.launch_id])
    return found


def _rows(folder: Path) -> list[dict[str, Any]]:
    try:
        return samples.rows(folder)
    except (OSError, ValueError) as error:  # all that a damaged file makes of json and pyarrow
        log.warning("the replies in %s are not compared: %s", folder, str(error).splitlines()[0])
        return []


def _replies(
    record: Record, measurement: Measurement, rows: Sequence[Mapping[str, Any]]
) -> Iterator[Reply]:
    levels = {p.concurrency for p in measurement.passes}
    valid = {p.order for concurrency in levels for p in measurement.at(concurrency)}
    for row in rows:
        if row["order"] in valid and not row["error"]:
            yield _reply(record, row)


def _reply(record: Record, row: Mapping[str, Any]) -> Reply:
    trial = record.trial
    return Reply(
        split=trial.stage.prompts,
        candidate=trial.candidate,
        num_speculative_tokens=trial.num_speculative_tokens,
        launch_id=record.launch_id,
        concurrency=row["concurrency"],
        block=row["block"],
        prompt_id=row["prompt_id"],
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        seconds=row["end_s"] - row["sent_s"],
        said=_said(row),
    )


def _said(row: Mapping[str, Any]) -> ReplyPrint | None:
    if row.get("reply_marks") is None:
        return None
    return ReplyPrint(
        words=row["reply_words"],
        marks=row["reply_marks"],
        whole=row["reply_whole"],
        distinct_2=row["distinct_2"],
    )
