import pytest
from kdist.errors import UserError
from kdist.training.config import TrainConfig
from kdist.training.recipes import read_recipe, read_settings_file, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_a_run(name):
    settings = read_recipe(name)
    config = TrainConfig.from_dict(settings)
    assert settings.items() <= config.to_dict().items()
    # A recipe that changes nothing would be none.
    assert settings != {}


def test_an_unknown_recipe_names_the_known():
    with pytest.raises(UserError, match="recipe has to be one of .*fast.*; received slow"):
        read_recipe("slow")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "# why\nwidth = 2\nbase_lr = 0.5\n"), ("a.json", '{"width": 2, "base_lr": 0.5}')],
)
def test_settings_from_a_file(name, text, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    assert read_settings_file(str(path)) == {"width": 2, "base_lr": 0.5}


@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_a_byte_order_mark_is_no_part_of_the_settings(name, tmp_path):
    text = "width = 2" if name == "a.toml" else '{"width": 2}'
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read_settings_file(str(tmp_path / name)) == {"width": 2}


@pytest.mark.parametrize("path", ["", "a\0.toml", "\udcff.toml", "x" * 300, "/dev/zero", "."])
def test_what_is_no_file_is_no_settings_file(path):
    with pytest.raises(
        UserError,
        match=r"^(the settings file (is an empty|has to be)|cannot read the settings)",
    ):
        read_settings_file(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[1]"),
        ("a.json", '{"a":' * 5000),
        ("a.toml", "width"),
        ("a.toml", None),
        ("a.toml", "a = " + "[" * 5000 + "]" * 5000),
        ("a.toml", "width = " + "9" * 5000),
    ],
)
def test_what_is_no_settings_file(name, text, tmp_path):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=name):
        read_settings_file(str(path))
