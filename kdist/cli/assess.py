"""`kdist assess`: parses and calls, no logic."""

from typing import Annotated

from cyclopts import Parameter

from ..assessment.options import AssessOptions
from ..data.datasets import DatasetName
from .integers import parse_integer


def assess(
    script: Annotated[
        str | None,
        Parameter(help="A script that calls model.fit; by default kdist's own recipe."),
    ] = None,
    /,
    *,
    generation: Annotated[
        int, Parameter(help="Generation of the assessment: 1 or 2.", converter=parse_integer)
    ] = 1,
    replicas: Annotated[
        int | None,
        Parameter(
            help="Replicas for the script; by default every GPU, or the CPU split in two.",
            converter=parse_integer,
        ),
    ] = None,
    dataset: Annotated[
        DatasetName | None,
        Parameter(
            help="Data set; by default CIFAR-10 if it is found, or else the sample. For a script:"
            " the data set that it trains on, if it loads the images itself."
        ),
    ] = None,
    data_dir: Annotated[
        str | None, Parameter(help="Folder of the data set for kdist's own recipe.")
    ] = None,
    seed: Annotated[
        int | None,
        Parameter(help="Seed of kdist's own recipe; 0 by default.", converter=parse_integer),
    ] = None,
) -> int:
    """Say line by line whether a script passes the course's assessment."""
    options = AssessOptions(
        script=script,
        generation=generation,
        replicas=replicas,
        dataset=dataset,
        data_dir=data_dir,
        seed=seed,
    )
    from ..assessment.judgement import has_passed
    from ..assessment.run import assess as run

    return 0 if has_passed(run(options)) else 1
