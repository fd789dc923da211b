"""What tuning gains on whole networks: the model with and without the schedules that a search of some minutes found.

    python -m benchmarks.networks                                      # six networks, 15 minutes each
    python -m benchmarks.networks --minutes 4 --models candy,gpt2 --json FILE

Both are compiled as a user would have them and run in turns, in this process, after the search; the search begins with
an empty database. Models of the folder ``WEFT_MODELS`` are left out where it does not exist. Run nothing else on the
machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import models_zoo

import weft
from benchmarks.report import Table, tables_to_json
from weft.measure.random_inputs import random_inputs
from weft.tune import TuningResult, tune_model
from weft.tune.in_model import in_turns

NETWORKS: Final[dict[str, Callable[[], Path]]] = {
    "shufflenet": lambda: models_zoo.light("shufflenet"),
    "efficientnet-b0": lambda: models_zoo.transformer("efficientnet"),
    "mobilenetv2": lambda: models_zoo.transformer("mobilenetv2"),
    "inception-v2": lambda: models_zoo.light("inception_v2"),
    "candy": lambda: models_zoo.shared("winml_candy"),
    "gpt2": lambda: models_zoo.transformer("gpt2"),
}
COLUMNS: Final = ("network", "untuned ms", "tuned ms", "speed", "kernels", "tuned", "refused", "trials", "search s")


def row(name: str, path: Path, minutes: float, threads: int, reports: Path | None) -> tuple[Any, ...]:
    """What a search for one network reached."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "tuned.db"
        report = None if reports is None else reports / f"{name}.html"
        begin = time.perf_counter()
        result: TuningResult = tune_model(path, database=db, minutes=minutes, threads=threads, report=report)
        took = time.perf_counter() - begin
        both = [weft.compile(path, threads=threads), weft.compile(path, threads=threads, tuning_db=db)]
        before, after = in_turns(both, list(random_inputs(both[0].inputs).values()))
    print(result, file=sys.stderr, flush=True)
    outcomes = [k.outcome for k in result.kernels]
    made = (
        *(name, 1e3 * before, 1e3 * after, before / after, len(outcomes)),
        *(outcomes.count("tuned"), outcomes.count("refused"), result.new_trials, round(took)),
    )
    print(*made, file=sys.stderr, flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NETWORKS), help="comma-separated")
    parser.add_argument("--minutes", type=float, default=15.0, help="to search, for each network")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reports", type=Path, default=None, help="folder for the HTML reports")
    parser.add_argument("--json", type=Path, default=None, help="write the table as a record")
    given = parser.parse_args()
    rows = []
    for name in given.models.split(","):
        try:
            path = NETWORKS[name]()
        except models_zoo.Unavailable as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        rows.append(row(name, path, given.minutes, given.threads, given.reports))
    if not rows:
        raise SystemExit("no network is here")
    mean = statistics.geometric_mean([r[3] for r in rows])
    note = f"Geometric mean of the speeds: {mean:.3f}. {given.minutes:g} minutes each, {given.threads} threads."
    table = Table("Tuning of networks", COLUMNS, tuple(rows), note)
    print(table.plain())
    if given.json:
        given.json.write_text(tables_to_json([table]))


if __name__ == "__main__":
    main()
