"""`Finding`: a cause of differences, what shows it, and how to fix it."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A cause that an experiment has shown, or a suspicion.

    Attributes:
        name: Of the cause, such as `unsynchronized_batch_norm`.
        text: What is the matter, in the user's terms.
        shown_by: The experiment or observation that shows it.
        fix: What to write instead.
        line: The line of the user's file, as `my_model.py:31: x = …`; empty if unknown.
        level: `fault` if the model depends on the number of replicas; `note` if it does not;
            `suspect` if this may be the cause, which no experiment shows.
    """

    name: str
    text: str
    shown_by: str
    fix: str
    line: str = ""
    level: Literal["fault", "note", "suspect"] = "fault"
