"""Writes `docs/reference/settings.md` from the types of the settings.

python docs/settings_page.py
"""

from pathlib import Path

from kdist.fields import Field, IsFolder, fields_of
from kdist.study.search_settings import Search
from kdist.training.config import TrainConfig

PATH = Path(__file__).parent / "reference" / "settings.md"
_KINDS = {bool: "yes or no", int: "integer", float: "number"}


def page(classes=(TrainConfig, Search)):
    """The page as Markdown: a table for each group of settings."""
    lines = [
        "# Settings",
        "",
        "Every setting is an option of the command line (`base_lr` is `--base-lr`) and a name in a"
        " settings file.",
        "`kdist sweep` and `kdist tune` take the settings of `kdist train`, too, except for those"
        " that they set themselves; the last table is for `kdist tune`.",
    ]
    for settings in classes:
        fields = [f for f in fields_of(settings) if f.name not in ("config", "space")]
        for group in dict.fromkeys(field.group for field in fields):
            lines += ["", f"## {group}", ""]
            lines += ["| setting | effect | values | default |", "| --- | --- | --- | --- |"]
            lines += [_line(field) for field in fields if field.group == group]
    return "\n".join(lines) + "\n"


def _line(field: Field):
    default = "" if field.default is None else f"`{field.default}`"
    return f"| `{field.name}` | {field.help} | {_values(field)} | {default} |"


def _values(field: Field):
    if field.choices:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    kind = "folder" if field.has_mark(IsFolder) else _KINDS.get(field.kind, "text")
    return f"{kind} {field.bounds}".rstrip()


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
