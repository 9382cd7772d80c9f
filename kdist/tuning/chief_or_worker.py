"""`Role`: chief, worker or single process of a search, from KerasTuner's environment variables."""

import dataclasses
from collections.abc import Mapping

from ..errors import UserError

_TUNER_ID = "KERASTUNER_TUNER_ID"
_ORACLE_IP = "KERASTUNER_ORACLE_IP"
_ORACLE_PORT = "KERASTUNER_ORACLE_PORT"


@dataclasses.dataclass(frozen=True)
class Role:
    """The role of a process in a search.

    Attributes:
        tuner_id: KerasTuner's name of the process; `None` if it runs the whole search.
    """

    tuner_id: str | None = None

    @property
    def is_chief(self) -> bool:
        """Whether it hands out the trials without training any."""
        return self.tuner_id is not None and "chief" in self.tuner_id

    @property
    def is_worker(self) -> bool:
        """Whether it trains the trials that a chief hands out."""
        return self.tuner_id is not None and not self.is_chief


def read_role(environment: Mapping[str, str]) -> Role:
    """Read the role of a process from its environment.

    Args:
        environment: Such as `os.environ`.

    Raises:
        UserError: KerasTuner's variables are not all set.
    """
    if _ORACLE_IP not in environment:
        return Role()
    missing = [name for name in (_ORACLE_PORT, _TUNER_ID) if name not in environment]
    if missing:
        raise UserError(
            f"received {_ORACLE_IP} without {' and '.join(missing)}: set it too, or unset the"
            " variable"
        )
    return Role(environment[_TUNER_ID])


def refuse_own_processes(role: Role, per_trial: int | None) -> None:
    """Reject `per_trial` if the search already has a chief.

    Raises:
        UserError: Both are given.
    """
    if role.tuner_id is not None and per_trial is not None:
        raise UserError(
            f"received per_trial={per_trial} and {_ORACLE_IP}: --per-trial starts a chief and"
            " workers itself; unset the variable, or remove --per-trial"
        )


def role_variables(tuner_id: str, *, ip: str, port: int) -> dict[str, str]:
    """Return the environment variables that give a process its role.

    Args:
        tuner_id: `"chief"`, or any other name for a worker.
        ip: The chief's address.
        port: The chief's port.
    """
    return {_TUNER_ID: tuner_id, _ORACLE_IP: ip, _ORACLE_PORT: str(port)}
