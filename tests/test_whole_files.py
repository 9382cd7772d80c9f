import pytest
from kdist.whole_files import write_whole


@pytest.mark.parametrize(
    ("content", "written"), [("zwölf\n", "zwölf\n".encode()), (b"\x89", b"\x89")]
)
def test_the_new_content_takes_the_place_of_the_old(tmp_path, content, written):
    path = tmp_path / "file"
    path.write_text("old")
    write_whole(path, content)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(OSError, match="taken"):
        write_whole(folder, "new")
    assert list(tmp_path.iterdir()) == [folder]
