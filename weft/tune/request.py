"""What the caller of a tuner asks for, checked before anything is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from weft.runtime.threads import checked_threads
from weft.support.arguments import WHOLE, shown
from weft.support.errors import MissingExtra, UserError
from weft.support.files import check_writable
from weft.support.words import counted, did_you_mean
from weft.target import Target, host
from weft.tune.by_size import ladder
from weft.tune.database import Database
from weft.tune.guiding import check_features
from weft.tune.model.boosted import BoostedTrees
from weft.tune.model_tuner import Settings
from weft.tune.scheduler import Budget, check_policy
from weft.tune.search import strategy_named

EFFORTS: Final = {"low": 16, "medium": 64, "high": 256}
"""Trials of each kernel that has a choice of schedules."""
MAX_SEED: Final = 2**31 - 1


@dataclass(frozen=True)
class Request:
    """How to search, and for how long. ``per_kernel`` are trials for each kernel, where neither ``trials`` of all
    kernels together nor ``minutes`` were given. ``notes`` is what the caller should know."""

    settings: Settings
    threads: int
    trials: int | None
    minutes: float | None
    per_kernel: int | None
    notes: tuple[str, ...] = ()

    def with_notes(self, notes: Iterable[str]) -> Request:
        """The same, with more that the caller should know."""
        return replace(self, notes=(*self.notes, *notes))

    def budget(self, kernels: int) -> Budget:
        """The budget for so many kernels with a choice."""
        trials = self.per_kernel * kernels if self.per_kernel is not None else self.trials
        return Budget(trials, None if self.minutes is None else 60 * self.minutes)

    def facts(self, target: Target) -> dict[str, str]:
        """How it is tuned, for people."""
        settings, budget = self.settings, []
        if self.per_kernel is not None:
            budget.append(f"{counted(self.per_kernel, 'trial')} for each kernel")
        if self.trials is not None:
            budget.append(counted(self.trials, "trial"))
        if self.minutes is not None:
            budget.append(f"{self.minutes:g} min")
        return {
            "target": str(target),
            "threads": str(self.threads),
            "budget": " or ".join(budget),
            "strategy": settings.strategy,
            "next kernel": settings.policy,
            "predictions": "draft model"
            if settings.features == "none"
            else f"draft model and learned cost model ({settings.features})",
            "seed": str(settings.seed),
        }


def requested(
    *,
    trials: int | None,
    minutes: float | None,
    effort: str,
    threads: int | None,
    strategy: str,
    policy: str,
    seed: int,
    features: str,
    in_model: bool,
    layouts: bool,
    report: str | os.PathLike[str] | None,
) -> Request:
    """The request of these arguments. Raises UserError U023 for a value that is out of range, U033, U034 and U056 for
    an unknown strategy, policy or kind of features, InputError I030 where the report cannot be written."""
    if trials is not None and trials < 1:
        raise UserError(f"{shown(trials)} trials are no budget", code="U023", hint="at least 1, or an effort")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise UserError(f"{shown(minutes)} minutes are no budget", code="U023", hint="a number above 0")
    if not 0 <= seed <= MAX_SEED:
        raise UserError(f"the seed {shown(seed)} is out of range", code="U023", hint=f"0 to {MAX_SEED}")
    if effort not in EFFORTS:
        hint = did_you_mean(effort, EFFORTS, f"efforts: {', '.join(EFFORTS)}")
        raise UserError(f"there is no effort '{effort}'", code="U023", hint=hint)
    if layouts and not in_model:
        raise UserError(
            "layouts are chosen by the time of the whole model, which in_model=False (--no-check) leaves out",
            code="U023",
            hint="leave out one of the two",
        )
    strategy_named(strategy)
    check_policy(policy)
    if report is not None:
        check_writable(os.fspath(report))
    check_features(features)
    features, notes = _learning(features)
    settings = Settings(strategy, features, policy, seed, in_model)
    per_kernel = EFFORTS[effort] if trials is None and minutes is None else None
    return Request(settings, checked_threads(threads), trials, minutes, per_kernel, notes)


def _learning(asked: str) -> tuple[str, tuple[str, ...]]:
    """The features that a cost model can learn from, and a note where it should but cannot."""
    if asked == "none":
        return asked, ()
    try:
        BoostedTrees(("probe",))
    except MissingExtra as missing:
        return "none", (f"{missing.message} ({missing.hint}): the draft model predicts alone",)
    return asked, ()


@contextlib.contextmanager
def opened(database: Database | str | os.PathLike[str]) -> Iterator[Database]:
    """The database; one that is given by its path is made if there is none, and is open inside of the ``with``
    statement."""
    if isinstance(database, Database):
        yield database
    else:
        with Database(database, create=True) as made:
            yield made


def check_measurable(target: Target) -> None:
    """Raise UserError U024 for a target whose code this machine does not run."""
    there, here = (t.cpu.triple.split("-")[0] for t in (target, host()))
    if there != here:
        raise UserError(
            f"code for {there} cannot be measured on this machine, which is {here}",
            code="U024",
            hint="tune on a machine of that kind, with a runner or --board HOST:PORT",
        )


def notes_of_sizes(values: Mapping[str, Sequence[int]], known: Iterable[str]) -> list[str]:
    """What the caller should know of open sizes without values: that they are tuned for 1 only."""
    missing = sorted(set(known) - values.keys())
    if not missing:
        return []
    names, one = ", ".join(missing), missing[0]
    return [f"{names}: tuned for the size 1 only; for others give a range, as --size {one}=1..512"]


def values_of(sizes: Mapping[str, int | Sequence[int]] | None, known: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The values of each open size to tune for; a ``range`` stands for the powers of two in it and its ends. Raises
    UserError U023 for a size that is not ``known`` or a value that is no size."""
    made: dict[str, tuple[int, ...]] = {}
    names = sorted(known)
    for name, given in (sizes or {}).items():
        if name not in names:
            hint = did_you_mean(name, names, f"open sizes: {', '.join(names) or 'none'}")
            raise UserError(f"there is no open size '{name}'", code="U023", hint=hint)
        values = given if isinstance(given, (list, tuple)) else (given,)
        if isinstance(given, range) and given.step == 1 and 0 < given.start < given.stop:
            values = ladder(given.start, given.stop - 1)
        if not values or not all(WHOLE.accepts(v) and v > 0 for v in values):
            raise UserError(
                f"the size '{name}' cannot be {shown(given)}", code="U023", hint="1, [1, 8] or range(1, 513)"
            )
        made[name] = tuple(int(v) for v in values)
    return made
