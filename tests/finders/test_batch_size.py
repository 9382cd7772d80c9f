"""The search with tries that are not run, the process of a try, and the real thing."""

import os
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from kdist.errors import TrainingError, UserError
from kdist.tools.find import batch_size
from kdist.tools.find.batch_size import (
    TRY_VARIABLE,
    BatchSizeTry,
    find_batch_size,
    run_try,
    search_largest,
)
from kdist.tools.find.batch_size_try import make_full_batches
from kdist.training.user_model.user_functions import UserFunctions

MODEL = """
import keras
import numpy as np


def build():
    assert open("/proc/self/oom_score_adj").read() == "1000\\n"  # ended first by the kernel
    inputs = keras.Input((64,))
    x = keras.layers.RepeatVector(4096)(inputs)  # 1 MiB a sample
    x = keras.layers.Dense(64, "tanh")(x)
    outputs = keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")
    return model


def data():
    return (np.ones((600, 64), "float32"), np.ones((600, 1), "float32")), None


def fails():
    raise KeyError("no such file")
"""


TRY = {
    "model": "m.py:build",
    "data": "data",
    "batch_size": 8,
    "replicas": 1,
    "shard_optimizer": False,
    "shard_weights": False,
}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "wide.py"
    path.write_text(MODEL)
    return f"{path}:build"


@pytest.fixture
def tries(monkeypatch):
    """Lets tries work up to a limit, without a process."""

    def use(limit, lacks="memory", end=""):
        def run(arguments):
            batch = arguments["batch_size"]
            if batch > limit:
                return BatchSizeTry(batch_size=batch, works=False, missing_resource=lacks, end=end)
            return BatchSizeTry(batch_size=batch, works=True, samples_per_second=4 * batch)

        monkeypatch.setattr(batch_size, "run_try", run)

    return use


def test_five_percent_below_the_largest_that_works(model, tries):
    tries(100)
    said = []
    found = find_batch_size(model, start=16, announce=lambda one: said.append(str(one)))
    assert (found.largest, found.batch_size, found.limit) == (100, 95, "memory")
    assert [one.batch_size for one in found.tries] == [16, 32, 64, 128, 96, 112, 104, 100]
    assert said[0] == "batch 16: works, 64 samples per second"
    assert said[3] == "batch 128: not enough memory"
    assert str(found).endswith("use --batch-size 95")


def test_no_margin_where_memory_is_not_the_limit(model, tries):
    tries(100, lacks="data")
    by_data = find_batch_size(model, start=16)
    assert (by_data.batch_size, by_data.limit) == (100, "data")
    tries(100)
    by_most = find_batch_size(model, start=16, most=50)
    assert (by_most.batch_size, by_most.limit) == (50, "most")


def test_not_one_sample(model, tries):
    tries(0)
    with pytest.raises(TrainingError, match="memory: make .* smaller, or use fewer replicas"):
        find_batch_size(model)
    tries(0, end="SIGSEGV: boom")
    said = []
    with pytest.raises(TrainingError, match=r"the last try ended with SIGSEGV: boom"):
        find_batch_size(model, announce=said.append)
    assert str(said[0]) == "batch 16: not enough memory (SIGSEGV: boom)"
    tries(0, lacks="data")
    with pytest.raises(TrainingError, match="fewer samples than replicas"):
        find_batch_size(model)


@pytest.mark.parametrize("wrong", [{"start": 0}, {"start": True}, {"most": 1.5}, {"most": None}])
def test_what_is_refused(wrong, model, tries):
    tries(9)
    with pytest.raises(UserError):
        find_batch_size(model, **wrong)


def test_whether_the_data_fill_a_batch():
    import tensorflow as tf

    arrays = np.zeros((10, 3)), np.zeros(10)
    dataset = tf.data.Dataset.from_tensor_slices(arrays)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return tuple(array[5 * index :][:5] for array in arrays)

    def functions(data):
        return UserFunctions(build=list, make_data=data)

    full = make_full_batches(functions(lambda: arrays), 4)
    assert [len(array) for array in full.training] == [8, 8]
    again = make_full_batches(functions(lambda: dataset.batch(3)), 4)
    assert [len(x) for x, _ in again.training] == [4, 4]
    for data in (
        lambda: arrays,
        lambda: dataset.batch(3),
        lambda batch_size: dataset.batch(batch_size),
        lambda batch_size: dataset.batch(batch_size, drop_remainder=True),
    ):
        assert make_full_batches(functions(data), 10) is not None
        assert make_full_batches(functions(data), 11) is None
    assert make_full_batches(functions(lambda batch_size: Batches()), 5) is not None
    with pytest.raises(UserError, match=r"def data\(batch_size\):"):
        make_full_batches(functions(Batches), 4)


@pytest.mark.slow
def test_data_that_fail(model):
    with pytest.raises(UserError, match=r"wide.py:\d+: .*KeyError: 'no such file'"):
        find_batch_size(model, "fails")


@pytest.mark.slow
def test_real_tries(model, tmp_path):
    """Samples of 512 GiB: 600 of them exceed the addresses of a process, on any machine."""
    arguments = TRY | {"model": model}
    assert run_try(arguments | {"batch_size": 50}).samples_per_second > 0
    path = tmp_path / "too_wide.py"
    wide = MODEL.replace("4096", "2**21").replace("(64,)", "(2**16,)")
    path.write_text(wide.replace("(600, 64)", "(600, 2**16)"))
    result = run_try(TRY | {"model": f"{path}:build", "batch_size": 600})
    assert (result.works, result.missing_resource) == (False, "memory")
    assert TRY_VARIABLE not in os.environ


TALKATIVE = """
import atexit, os, keras, numpy as np, tensorflow as tf

print("a line of the file")
atexit.register(print, "a line at its end")


class Adversaries(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        loss = tf.reduce_mean(self(data[0]) ** 2)
        return {"one": loss, "other": {"two": -loss}}


def build():
    os.system("echo a line of another program")
    model = Adversaries()
    model.compile("sgd")
    return model


def data(batch_size):
    x = np.ones((20, 3), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x)).batch(batch_size, drop_remainder=True), None
"""


@pytest.mark.slow
def test_what_a_file_prints_is_no_result(tmp_path):
    path = tmp_path / "talkative.py"
    path.write_text(TALKATIVE)
    arguments = TRY | {"model": f"{path}:build"}
    result = run_try(arguments)
    assert result.works
    # A dataset without a full batch is empty: the data are too few, which is no error.
    few = run_try(arguments | {"batch_size": 21})
    assert (few.works, few.missing_resource) == (False, "data")


@pytest.mark.parametrize("limit", [1, 2, 3, 15, 16, 17, 100, 1000, 4095])
@pytest.mark.parametrize("start", [1, 16, 700])
def test_within_a_twentieth_and_each_number_once(limit, start):
    tried = []

    def works(number):
        tried.append(number)
        return number <= limit

    found = search_largest(works, start=start, most=5000)
    assert limit / 1.05 - 1 < found <= limit
    assert len(set(tried)) == len(tried)
    assert found in tried


@pytest.mark.parametrize(
    ("limit", "start", "most", "found", "expected"),
    [
        (100, 16, 1000, 100, [16, 32, 64, 128, 96, 112, 104, 100]),
        (1000, 16, 50, 50, [16, 32, 50]),
        (1000, 99, 50, 50, [50]),
        (0, 8, 50, None, [8, 4, 2, 1]),
    ],
)
def test_doubles_then_halves(limit, start, most, found, expected):
    tried = []
    works = lambda number: tried.append(number) or number <= limit  # noqa: E731
    assert search_largest(works, start=start, most=most) == found
    assert tried == expected


HEAD = "import os, signal, sys; from kdist.processes.child import send_answer"


def run_program(text):
    return run_try(TRY, program=[sys.executable, "-c", f"{HEAD}\n{text}"])


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
        ("print('std::bad_alloc', file=sys.stderr); os.abort()", ""),
        ("raise MemoryError", ""),
    ],
)
def test_a_process_that_dies_of_memory_is_a_try(text, how):
    assert run_program(text) == BatchSizeTry(
        batch_size=8, works=False, missing_resource="memory", end=how
    )


def test_a_process_that_dies_of_something_else_is_an_error():
    with pytest.raises(TrainingError, match=r"exit code 3: broken"):
        run_program("print('broken', file=sys.stderr); sys.exit(3)")
    # Nothing says that memory ran out.
    with pytest.raises(TrainingError, match="SIGSEGV"):
        run_program("os.kill(os.getpid(), signal.SIGSEGV)")
    # What was printed before an error is not about it; all of its traceback is shown.
    deep = "def f(n):\n    return [0][n] if n > 7 else f(n + 1)"
    with pytest.raises(TrainingError) as error:
        run_program(f"print('out of memory?', file=sys.stderr)\n{deep}\nf(0)")
    message = str(error.value)
    assert "exit code 1: Traceback (most recent call last):" in message
    assert message.endswith("IndexError: list index out of range")
    assert "out of memory?" not in message
    with pytest.raises(UserError, match=r"m.py:3: KeyError"):
        run_program("send_answer(mistake='m.py:3: KeyError'); sys.exit(2)")


def test_no_process_is_left_after_ctrl_c(tmp_path):
    """The end of a pipe says so: both programs have it open for writing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = f"import signal; end = open({str(pipe)!r}, 'w'); print('up', file=end, flush=True)"
    parent = (
        "import sys; from kdist.tools.find import batch_size"
        f"; batch_size.run_try({TRY},"
        f" program=[sys.executable, '-c', {child + '; signal.pause()'!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE)
    with open(pipe) as said:
        assert said.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert said.read() == ""
    assert b"KeyboardInterrupt" in process.communicate()[1]


def test_a_try_does_not_start_tries(monkeypatch):
    monkeypatch.setenv(TRY_VARIABLE, "1")
    with pytest.raises(UserError, match="__main__"):
        run_program("")
