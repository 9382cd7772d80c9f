"""`Placement`: on how many workers and replicas a point trains."""

import dataclasses
from collections.abc import Sequence

from ..errors import UserError
from ..runs.text import count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The workers and replicas of a point.

    Attributes:
        workers: Processes that train together.
        replicas: Of each worker.
    """

    workers: int
    replicas: int

    @property
    def total(self) -> int:
        """The replicas of all workers."""
        return self.workers * self.replicas

    def __str__(self) -> str:
        return f"{count(self.workers, 'worker')} with {count(self.replicas, 'replica')}"


def placements(workers: Sequence[int], replicas: Sequence[int]) -> list[Placement]:
    """Combine numbers of workers with numbers of replicas.

    Args:
        workers: Numbers of workers.
        replicas: Numbers of replicas of each worker.

    Raises:
        UserError: Two combinations have as many replicas in all, by which results are told apart.

    Example:
        >>> [one.total for one in placements([1, 2], [4])]
        [4, 8]
    """
    found: dict[int, Placement] = {}
    for count_of_workers in workers:
        for each in replicas:
            one = Placement(workers=count_of_workers, replicas=each)
            if one.total in found:
                raise UserError(
                    f"{found[one.total]} and {one} each have {one.total} replicas in all, by which"
                    " a sweep tells its points apart: pass one number of --workers or --replicas,"
                    " and run a sweep for each of the others"
                )
            found[one.total] = one
    return list(found.values())
