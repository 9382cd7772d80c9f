"""What the command files share: how options are described, and which were given."""

import typer


def choices(names: tuple[str, ...]) -> str:
    """The end of an option's help."""
    return f"One of {', '.join(names)}."


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, even with its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
