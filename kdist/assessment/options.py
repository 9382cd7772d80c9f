"""`AssessOptions`: what `kdist assess` assesses, checked."""

import dataclasses
import os
from typing import Annotated

from annotated_types import Ge, Le

from ..arguments import path_text
from ..data.datasets import DATASETS, DatasetName, check_data_dir
from ..errors import UserError
from ..training.fields import check_fields
from ..training.settings import Replicas
from .targets import GENERATIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssessOptions:
    """What is assessed, and how.

    Attributes:
        script: The learner's script; `None` for kdist's own recipe.
        generation: Of the assessment, 1 or 2, whose targets differ.
        replicas: Number of replicas; by default every GPU, else the CPU in two.
        dataset: Data set. With a script: what it trains on, if it loads the images itself; without
            one, by default CIFAR-10 where it is found, else Fashion-MNIST's sample.
        data_dir: Its folder, without a script.
        seed: Seed of the recipe, without a script.

    Raises:
        UserError: One of them is invalid.
    """

    script: str | None = None
    generation: int = 1
    replicas: Replicas | None = None
    dataset: DatasetName | None = None
    data_dir: str | None = None
    seed: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.generation not in GENERATIONS:
            raise UserError(
                f"generation={self.generation} has no targets: pass"
                f" {' or '.join(map(str, GENERATIONS))}"
            )
        check_data_dir(self.dataset or "cifar10", self.data_dir)
        if self.script is None and self.dataset is not None and not DATASETS[self.dataset].recipe:
            raise UserError(
                f"received dataset={self.dataset}, for which kdist has no recipe that passes: pass"
                " a script, or another data set"
            )
        if self.script is not None:
            script = path_text("the script", self.script)
            if not os.path.isfile(script):
                raise UserError(
                    f"there is no script {script}: pass the path of one that calls model.fit, or"
                    " none for kdist's own recipe"
                )
            if self.data_dir is not None:
                raise UserError(
                    f"received data_dir={self.data_dir} and the script {script}, which finds its"
                    " images itself: remove data_dir"
                )
            if self.seed is not None:
                raise UserError(
                    f"received seed={self.seed} and the script {script}, which has a seed of its"
                    " own: remove seed"
                )
