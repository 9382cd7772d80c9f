"""Command lines: those that a user could type, with odd values, in odd combinations."""

from hypothesis import strategies as st
from kdist.cli.app import app
from kdist.fields import fields_of
from kdist.study.search_settings import Search

from .cases import Case
from .drawn_options import plain_options, setting_options, with_file
from .odd_values import ODD_NUMBERS, ODD_PATHS, ODD_TEXTS, READ_PATHS
from .option_values import FIND, LAUNCH, LISTS, SWEEP, SWEEPS
from .result_files import result_files, whole
from .settings_files import FIELDS, settings, spaces

_SEARCH = {field.name: field for field in fields_of(Search) if field.name != "config"}
_OWN_MODELS = st.sampled_from([[], [], ["mine.py:build"]]) | ODD_PATHS.map(lambda path: [path])
COMMANDS = tuple(name for name in app if not name.startswith("-"))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A command line of any command, with the files that it names."""
    kinds = (train, train, sweep, sweep, tune, tune, report, report, report, small)
    kinds += (launch, check, evaluate, find, nonsense)
    case = draw(draw(st.sampled_from(kinds))())
    arguments = list(case.arguments)
    if draw(st.integers(0, 19)) == 0:
        arguments.insert(draw(st.integers(0, len(arguments))), draw(ODD_TEXTS))
    if draw(st.integers(0, 19)) == 0:
        arguments += draw(st.sampled_from([["--help"], ["--version"], ["--"], ["--debug"], ["-x"]]))
    return Case(arguments, case.files)


def ordinary_cases() -> list[tuple[Case, str]]:
    """For each command one that succeeds and one with a mistake, and how they end."""
    begins, small = "training begins", ["--dataset=sample", "--depth=10", "--width=1"]
    succeed = {
        "train": (Case(["train", *small]), begins),
        "check": (Case(["check", "mine.py:build"], {"mine.py": b"pass\n"}), begins),
        "evaluate": (Case(["evaluate", "run", "--watch=1"], whole("run")), begins),
        "launch": (Case(["launch", "--workers=2", "-m", "kdist", "devices"]), begins),
        "sweep": (Case(["sweep", "throughput", *small]), begins),
        "tune": (Case(["tune", *small]), begins),
        "report": (Case(["report", "run"], whole("run")), "exit code 0"),
        "find": (Case(["find", "batch", "mine.py:build"], {"mine.py": b"pass\n"}), begins),
        "devices": (Case(["devices"]), begins),
        "doctor": (Case(["doctor"]), begins),
        "dashboard": (Case(["dashboard", "--help"]), "exit code 0"),  # needs an account
    }
    fail = [(Case([command, "--nosuch"]), "exit code 2") for command in COMMANDS]
    return [*(succeed[command] for command in COMMANDS), *fail]


@st.composite
def train(draw: st.DrawFn) -> Case:
    """`kdist train`."""
    options = [*draw(_OWN_MODELS), *draw(setting_options(FIELDS))]
    if draw(st.integers(0, 9)) == 0:
        options += ["--resume", draw(READ_PATHS | st.just("run"))]
        return Case(["train", *options], draw(result_files(("run",))))
    return draw(with_file(["train", *options], "--config", settings()))


@st.composite
def check(draw: st.DrawFn) -> Case:
    """`kdist check`."""
    options = {
        "--data": ODD_TEXTS | st.sampled_from(["data", "other.py:data"]),
        "--replicas": LISTS,
        "--workers": ODD_NUMBERS,
        "--steps": ODD_NUMBERS,
        "--batch-size": ODD_NUMBERS,
        "--seed": ODD_NUMBERS,
        "--no-synchronize": None,
        "--no-stock": None,
    }
    model = draw(st.just("mine.py:build") | ODD_PATHS)
    return Case(["check", model, *draw(plain_options(options))], {"mine.py": b"pass\n"})


@st.composite
def evaluate(draw: st.DrawFn) -> Case:
    """`kdist evaluate`."""
    options = {
        "--data-dir": ODD_PATHS,
        "--replicas": ODD_NUMBERS,
        "--val-batch-size": ODD_NUMBERS,
        "--averaged": None,
    }
    path = draw(READ_PATHS | st.just("run"))
    return Case(["evaluate", path, *draw(plain_options(options))], draw(result_files(("run",))))


@st.composite
def find(draw: st.DrawFn) -> Case:
    """`kdist find`."""
    kind = draw(st.sampled_from(sorted(FIND)))
    model = draw(st.just("mine.py:build") | READ_PATHS)
    options = draw(plain_options({**FIND[kind], "--data": ODD_TEXTS}))
    return Case(["find", kind, model, *options], {"mine.py": b"def build(): pass\n"})


@st.composite
def launch(draw: st.DrawFn) -> Case:
    """`kdist launch`."""
    options = draw(plain_options(LAUNCH))
    own = ["-m", "kdist", "tune"]
    program = draw(st.sampled_from([["mine.py"], ["-m", "mine"], ["-m"], [], own]))
    odd = draw(ODD_PATHS.map(lambda path: [path]) | st.just(program))
    return Case(["launch", *options, *odd, *draw(plain_options(LAUNCH))], {"mine.py": b"pass\n"})


@st.composite
def sweep(draw: st.DrawFn) -> Case:
    """`kdist sweep`."""
    kind = draw(st.sampled_from(sorted(SWEEPS)))
    own = draw(plain_options({**SWEEPS[kind], **SWEEP}))
    arguments = ["sweep", kind, *draw(_OWN_MODELS), *own, *draw(setting_options(FIELDS, most=1))]
    case = draw(with_file(arguments, "--config", settings()))
    if draw(st.booleans()):
        return case
    output = ["--output", draw(st.sampled_from(["s", "run", "s/points"]))]
    return Case([*case.arguments, *output], {**case.files, **draw(result_files())})


@st.composite
def tune(draw: st.DrawFn) -> Case:
    """`kdist tune`."""
    arguments = [
        "tune",
        *draw(setting_options(_SEARCH)),
        *draw(setting_options(FIELDS, most=1)),
    ]
    case = draw(with_file(arguments, "--space", spaces()))
    if draw(st.booleans()):
        return case
    resumed = ["tune", "--max-trials=2", "--dataset=sample", "--depth=10", "--width=1"]
    arguments = resumed if draw(st.booleans()) else case.arguments
    return Case(arguments, {**case.files, **draw(result_files(("search",)))})


@st.composite
def report(draw: st.DrawFn) -> Case:
    """`kdist report`."""
    found = draw(result_files())
    places = sorted({name.partition("/")[0] for name in found})
    paths = draw(st.lists(st.sampled_from([*places, "."]) | READ_PATHS, min_size=1, max_size=3))
    if draw(st.integers(0, 2)):
        paths = places or paths
    options = draw(plain_options({"--output": ODD_PATHS}, most=1))
    return Case(["report", *paths, *options], found)


@st.composite
def small(draw: st.DrawFn) -> Case:
    """`kdist devices`, `kdist doctor` and `kdist dashboard`."""
    dashboard = {"--project": ODD_TEXTS, "--entity": ODD_TEXTS, "--report": None}
    command, options = draw(
        st.sampled_from(
            [
                ("devices", {"--replicas": ODD_NUMBERS}),
                ("doctor", {"--replicas": ODD_NUMBERS}),
                ("dashboard", dashboard),
            ]
        )
    )
    return Case([command, *draw(plain_options(options))])


@st.composite
def nonsense(draw: st.DrawFn) -> Case:
    """Anything."""
    first = draw(st.sampled_from(["train", "sweep", "report", "tunes", "", "--help"]) | ODD_TEXTS)
    return Case([first, *draw(st.lists(ODD_TEXTS | ODD_NUMBERS | ODD_PATHS, max_size=4))])
