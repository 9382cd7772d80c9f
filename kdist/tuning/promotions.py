"""`promotable`: the trials that Hyperband may still train for more epochs."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._upstream.keras_tuner import BracketRound


def promotable(
    rounds: "Sequence[BracketRound]", *, losses: Mapping[str, float], failed: Collection[str]
) -> set[str]:
    """Return the finished trials of a bracket that may still be promoted.

    Hyperband promotes the best of a round while so many are left as are to be dropped.

    Args:
        rounds: Of the bracket.
        losses: Scores of finished trials, of which smaller ones are better.
        failed: Trials that failed, which are never promoted.
    """
    found: set[str] = set()
    trained = rounds[0].size  # at most
    for this, after in itertools.pairwise(rounds):
        trained -= sum(trial in failed for trial in this.trials)
        trained = max(0, trained - (this.size - after.size))  # in the round after this one
        left = trained - len(this.promoted)
        waiting = [one for one in this.trials if one in losses and one not in this.promoted]
        found |= set(sorted(waiting, key=losses.__getitem__)[: max(0, left)])
    return found
