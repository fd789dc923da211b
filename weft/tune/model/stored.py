"""Cost models as text: one line of JSON that says what the model is, then the trees in the words of LightGBM.

Nothing in the text is executed. A hash in the first line tells a damaged text, which LightGBM would not survive.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

from weft.support.errors import MALFORMED, UserError

FORMAT: Final = "weft cost model"
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model as plain values: the set of features and its version, the columns, the options, and the texts of the
    boosters of each member of the ensemble."""

    feature_set: str
    version: int
    columns: tuple[str, ...]
    options: dict[str, Any]
    members: tuple[tuple[str, ...], ...]


def text_of(model: StoredModel) -> str:
    """The text that :func:`model_of` reads back."""
    body = "".join(b for m in model.members for b in m)
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "feature_set": model.feature_set,
        "version": model.version,
        "columns": model.columns,
        "options": model.options,
        "lengths": [[len(b) for b in m] for m in model.members],
    }
    return f"{json.dumps({**head, 'hash': _hash(head, body)})}\n{body}"


def model_of(text: str) -> StoredModel:
    """The model that :func:`text_of` wrote. Raises UserError U054 for any other text, also if it is damaged."""
    first, _, body = text.partition("\n")
    try:
        head = json.loads(first)
        if head["format"] != FORMAT:
            raise ValueError(f"the format is '{head['format']}'")
        if head["format_version"] != FORMAT_VERSION:
            raise UserError(
                f"the cost model has the format {head['format_version']}, this version reads {FORMAT_VERSION}",
                code="U054",
                hint="train it again: weft tune-corpus --train FILE",
            )
        lengths = [[int(n) for n in m] for m in head["lengths"]]
        if head.pop("hash") != _hash(head, body):
            raise ValueError("it was changed or cut off")
        members, at = [], 0
        for m in lengths:
            ends = list(accumulate(m, initial=at))
            members.append(tuple(body[a:b] for a, b in pairwise(ends)))
            at = ends[-1]
        columns = tuple(map(str, head["columns"]))
        named = str(head["feature_set"]), int(head["version"])
        return StoredModel(*named, columns, dict(head["options"]), tuple(members))
    except MALFORMED as problem:
        raise UserError(f"this is not a cost model: {problem}", code="U054") from problem


def _hash(head: dict[str, Any], body: str) -> str:
    return hashlib.blake2b(f"{json.dumps(head)}\n{body}".encode(), digest_size=16).hexdigest()
