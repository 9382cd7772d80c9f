import pytest
from kdist.errors import UserError
from kdist.report.csv_measurements import read_csv_measurements


def read(tmp_path, content):
    path = tmp_path / "lab.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_csv_measurements(path)


@pytest.mark.parametrize(
    "content",
    [
        "batch_size,images_per_sec\n32,100.5\n64,150\n",
        "\ufeffbatch_size , images_per_sec,note\r\n32,100.5,cold\r\n\r\n64, 150,\r\n",
        'images_per_sec,"batch_size",replicas\n100.5,32,1\n150,64,\n',
    ],
)
def test_plain_csv_as_spreadsheets_write_it(tmp_path, content):
    typed = read(tmp_path, content)
    assert typed.name == "lab"
    given = ("batch_size", "images_per_sec", "replicas")
    assert [{name: row[name] for name in given} for row in typed.rows] == [
        {"batch_size": 32.0, "images_per_sec": 100.5, "replicas": 1.0},
        {"batch_size": 64.0, "images_per_sec": 150.0, "replicas": 1.0},
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no column batch_size and images_per_sec"),
        ("batch,images_per_sec\n1,2\n", "no column batch_size"),
        ("batch_size,images_per_sec\n", "no rows of measurements"),
        ("batch_size,images_per_sec\n8,1\n32,fast\n", "line 3: images_per_sec is 'fast'"),
        ("batch_size,images_per_sec\n32,nan\n", "line 2: images_per_sec is 'nan'"),
        ("batch_size,images_per_sec\n-1,5\n", "line 2: batch_size is '-1'"),
        ("batch_size,images_per_sec\n32\n", "line 2: images_per_sec is ''"),
        ("batch_size,images_per_sec,replicas\n32,5,inf\n", "line 2: replicas is 'inf'"),
        (b"batch_size,images_per_sec\n\xff,1\n", "not a valid CSV file"),
    ],
)
def test_what_will_not_do(tmp_path, content, words):
    with pytest.raises(UserError, match=words):
        read(tmp_path, content)


def test_no_such_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_csv_measurements(tmp_path / "no.csv")
