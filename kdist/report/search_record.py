"""`SearchRecord`: the folder of a hyperparameter search, read back."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..runs.text import sanitize_text
from ..tuning.objective import Objective, find_objective
from ..tuning.search import Search
from ..tuning.search_folder import SearchFolder
from ..tuning.search_results import TrialResult, best_first, read_trials

SEARCH_FILE = "search.json"


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A search as it is in its folder, finished or not.

    Attributes:
        name: The name of the search in the report.
        path: Its folder.
        search: Its settings.
        trials: The trials that began, in order.
    """

    name: str
    path: Path
    search: Search
    trials: Sequence[TrialResult]

    @property
    def objective(self) -> Objective:
        """The metric of its scores."""
        return find_objective(self.search.objective)

    @property
    def ranked(self) -> list[TrialResult]:
        """The trials that were completed, best first."""
        return best_first(list(self.trials), self.objective)

    @property
    def failed(self) -> list[TrialResult]:
        """The trials that failed."""
        return [trial for trial in self.trials if trial.status == "FAILED"]

    @property
    def unfinished(self) -> list[TrialResult]:
        """The trials that were stopped, or are still running."""
        ended = ("COMPLETED", "FAILED")
        return [trial for trial in self.trials if trial.status not in ended]


def read_search(path: Path) -> SearchRecord:
    """Read the folder of a search.

    Raises:
        UserError: Its files cannot be read, or are of another version of kdist.
    """
    folder = SearchFolder(str(path))
    try:
        search = Search.from_dict(folder.read(SEARCH_FILE) or {})
        trials = read_trials(folder, search)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"the files of its search cannot be read ({type(error).__name__}: {error}): they are"
            " damaged, or of another version of kdist"
        ) from error
    name = sanitize_text(path.resolve().name)
    return SearchRecord(name=name, path=path, search=search, trials=trials)
