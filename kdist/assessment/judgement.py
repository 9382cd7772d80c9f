"""`judge`: says of each requirement whether a training has met it, and what was found."""

import dataclasses
from collections.abc import Sequence

from ..runs.text import count
from .facts import Facts, Images
from .targets import Targets, accuracy

# Rates are looked at between executions of several steps, so a peak may be missed by a little.
_SAME_RATE = 0.05
_BELOW_PEAK = 0.9
_LEAST_WARMUP_STEPS = 10
# A data set may have the same image twice.
_REPEATED = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A requirement, and whether it is met.

    Attributes:
        requirement: What is required.
        passed: Whether it is met.
        found: What was found.
    """

    requirement: str
    passed: bool
    found: str

    def __str__(self) -> str:
        return f"{'passed' if self.passed else 'NOT PASSED':10}  {self.requirement}: {self.found}"


def judge(facts: Facts, alone: Facts, targets: Targets, *, replicas: int) -> list[Line]:
    """Judge a training.

    Args:
        facts: What it did.
        alone: What the same program plans to do with one replica, for its learning rates.
        targets: What its accuracies have to be.
        replicas: Number of replicas that it could use.

    Returns:
        A line for each requirement. Without a complete epoch, the first one says so, and the others
        are not judged.
    """
    if facts.error is not None or not facts.epochs:
        limit = "" if facts.late is None else f" in {targets.seconds:g} seconds"
        why = facts.error or f"it has not completed an epoch of model.fit{limit}"
        return [Line(requirement="the program runs", passed=False, found=why)]
    return [
        _targets(facts, targets),
        _seconds(facts, targets),
        _replicas(facts, replicas),
        _scaled(facts, alone, replicas),
        _warmed_up(facts, alone),
        _parts(facts, facts.images),
        _metrics(facts, facts.images),
    ]


def _targets(facts: Facts, targets: Targets) -> Line:
    met = targets.met(facts.epochs)
    if met is not None:
        found = f"in epochs {met - 1} and {met}"
    else:
        best = {
            name: max((a for e in facts.epochs if (a := accuracy(e.values, prefix)) is not None),
                      default=None)
            for name, prefix in (("training", ""), ("validation", "val_"))
        }  # fmt: skip
        shown = [f"{name} {'unknown' if a is None else f'{a:.3f}'}" for name, a in best.items()]
        found = f"never in {count(len(facts.epochs), 'epoch')}; at best {', '.join(shown)}"
    return Line(requirement=str(targets), passed=met is not None, found=found)


def _seconds(facts: Facts, targets: Targets) -> Line:
    met = targets.met(facts.epochs)
    total = facts.epochs[-1 if met is None else met - 1].seconds
    if met is None and facts.late is not None:
        total = facts.late
    return Line(
        requirement=f"within {targets.seconds:g} seconds",
        passed=met is not None and total <= targets.seconds,
        found=f"{total:.1f} seconds" + (", and not yet met" if met is None else ""),
    )


def _replicas(facts: Facts, replicas: int) -> Line:
    rows = facts.epochs[0].rows
    working = sum(own > 0 for own in rows)
    by = ", ".join(f"{own:,}" for own in rows)
    return Line(
        requirement=f"all {count(replicas, 'replica')} train",
        passed=working == replicas,
        found=f"{working} of {replicas}; rows of each in the first epoch: {by}",
    )


def _scaled(facts: Facts, alone: Facts, replicas: int) -> Line:
    requirement = "the learning rate grows with the replicas"
    peak, base = facts.peak, alone.peak
    if replicas == 1:
        return Line(requirement=requirement, passed=True, found="there is one only")
    if not peak or not base:
        found = "unknown with one replica: no rate was seen"
        if alone.error is not None:
            found = f"unknown with one replica, for which it is run a second time: {alone.error}"
        return Line(requirement=requirement, passed=False, found=found)
    ratio = peak / base
    rules = _rules(replicas)
    rule = scaling_rule(facts, alone, replicas)
    return Line(
        requirement=requirement,
        passed=rule is not None,
        found=f"at most {base:.4g} with one, {peak:.4g} with {replicas}: {ratio:.3g} times as much"
        + (f" ({rule} rule)" if rule else f", expected {replicas} ({rules['square root']:.3g} with"
           " the square root rule)"),
    )  # fmt: skip


def _rules(replicas: int) -> dict[str, float]:
    return {"linear": float(replicas), "square root": replicas**0.5}


def scaling_rule(facts: Facts, alone: Facts, replicas: int) -> str | None:
    """Return the rule by which the rate grows with the replicas; `None` if by none.

    Args:
        facts: What a training did.
        alone: What the same program plans to do with one replica.
        replicas: Number of replicas.
    """
    if not facts.peak or not alone.peak:
        return None
    ratio = facts.peak / alone.peak
    rules = _rules(replicas).items()
    return next((name for name, k in rules if abs(ratio / k - 1) <= _SAME_RATE), None)


def _warmed_up(facts: Facts, alone: Facts) -> Line:
    requirement = "the learning rate is warmed up"
    if not facts.rates:
        return Line(requirement=requirement, passed=False, found="no rate was seen")
    first, peak = facts.rates[0][1], max(rate for _, rate in facts.rates)
    steps = next(step for step, rate in facts.rates if rate >= peak) - facts.rates[0][0]
    rises = first < _BELOW_PEAK * peak
    # Of one replica: with several, the first steps are to be no larger than that one's.
    is_low = not alone.peak or first <= (1 + _SAME_RATE) * alone.peak
    found = f"it rises from {first:.4g} to {peak:.4g} in {count(steps, 'step')}"
    if not rises:
        found = f"it begins with {first:.4g}, and does not rise"
    elif not is_low:
        found = f"it begins with {first:.4g}, above the {alone.peak:.4g} of one replica"
    elif steps < _LEAST_WARMUP_STEPS:
        found += f", expected at least {_LEAST_WARMUP_STEPS}"
    passed = rises and is_low and steps >= _LEAST_WARMUP_STEPS
    return Line(requirement=requirement, passed=passed, found=found)


def _parts(facts: Facts, images: Images | None) -> Line:
    requirement = "the replicas' parts of the data are disjoint, and all of it together"
    if images is None:
        return Line(requirement=requirement, passed=False, found=_UNKNOWN)
    passed, found = True, ""
    for number, epoch in enumerate(facts.epochs, start=1):
        total = sum(epoch.rows)
        found = f"{total:,} of {images.training:,} images in epoch {number}"
        if epoch.repeated > _REPEATED * total:
            found += f", {epoch.repeated:,} of them on more than one replica"
            passed = False
        elif total > images.training:
            found += ", so some more than once"
            passed = False
        elif total < images.training - facts.largest_step:  # a last batch may be dropped
            found += ", so some never"
            passed = False
        if not passed:
            break
    return Line(requirement=requirement, passed=passed, found=found)


def _metrics(facts: Facts, images: Images | None) -> Line:
    requirement = "metrics are of all samples"
    if images is None:
        return Line(requirement=requirement, passed=False, found=_UNKNOWN)
    counts = sorted({epoch.validated for epoch in facts.epochs if epoch.validated})
    if not counts:
        return Line(requirement=requirement, passed=False, found="no epoch was validated")
    shown = " or ".join(f"{one:,}" for one in counts)
    return Line(
        requirement=requirement,
        passed=counts == [images.test],
        found=f"each validation has {shown} of {images.test:,} test images",
    )


_UNKNOWN = "unknown, as the images were not loaded by kdist.data or keras.datasets: pass --dataset"


def has_passed(lines: Sequence[Line]) -> bool:
    """Whether all requirements are met."""
    return all(line.passed for line in lines)
