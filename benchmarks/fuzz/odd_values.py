"""Odd numbers, texts and paths, as a command line or a file may hold them."""

from hypothesis import strategies as st

_DIGITS = [10**20, 10**40, 2**31, 2**63, 2**64, -(10**20)]

ODD_NUMBERS = st.sampled_from(
    [
        *map(str, _DIGITS),
        *["0", "-0", "-1", "00", "1", "2", "64", "65", "1000000000", "9" * 5000],
        *["1.0", "0.5", "1e3", "1e308", "1e999", "1e-999", "nan", "-nan", "inf", "-inf", "NaN"],
        *["0x10", "0xffffffffffffffffffffffff", "0o7", "0b1", "1_000", "1,000", "1;2", "+1", " 1"],
        *["\u0663", "\u00bd", "\u221e", "1\u00a0000", "--1", "1-", "1.2.3", "1e", "."],
    ]
) | st.one_of(st.integers().map(str), st.floats().map(str))

ODD_TEXTS = st.sampled_from(
    [
        *["", " ", "\t", "\n", "a\nb", "\x1b[31mred", "\x07", "\u202e", "\U0001f642", "\u00e9"],
        *["-", "--", "---", "=", "--=", "[]", "{}", '{"a": 1}', "null", "None", "true", "@file"],
        *["%s", "%(x)s", "{0}", "{missing}", "$HOME", "`id`", "*", "?", "\\", "'", '"', "<b>", "&"],
        *[",", ",,", "1,", ",1", "1,2", "8,8", "2,1", "8,a", "1 2", "x" * 300, "1," * 3000 + "1"],
        *[
            "wandb",
            "tensorboard,wandb",
            "none,wandb",
            "mlflow",
            "linear",
            "sqrt,none",
            "weak,strong",
        ],
        *["\udcff", "a\udcff.html", "\ud800"],
    ]
) | st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=12)

# Nothing outside of the case's own folder that a command could change.
ODD_PATHS = st.sampled_from(
    [
        *["", ".", "..", "./", "a", "a/b/c", "a//b", "a/../b", "new/deep/folder", " ", "~", "-"],
        *["x" * 254, "x" * 300, "x" * 300 + "/y", "x/" * 3000, "x" * 6000, "a/" + "x" * 300],
        *["null\0byte", "\udcff", "\udcff.html", "\udcff/a", "\ud800", "\u00e9", "new\nline"],
        *["/dev/null/x", "/proc/nothing", "/proc/self/environ", "file", "file/below", "folder"],
        *[
            "folder/file",
            "link",
            "loop",
            "dangling",
            "fifo",
            "a.html",
            "a.json",
            "a.toml",
            "a.py:b",
        ],
    ]
)
# Only read: what writes would take the place of a device.
READ_PATHS = ODD_PATHS.filter(lambda path: path != "fifo") | st.sampled_from(
    ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/full", "/proc/self/mem", "/proc/self", "/"]
)
