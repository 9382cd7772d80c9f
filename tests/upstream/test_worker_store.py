import threading

import pytest
import tensorflow as tf
from kdist._upstream import worker_store


@pytest.fixture
def silent_chief(monkeypatch):
    """A chief whose process stands still: no call comes back."""
    answers, asked = threading.Event(), []

    def call(function, *arguments):
        asked.append((function, *arguments))
        answers.wait()

    monkeypatch.setattr(worker_store, "call_c_function", call)
    monkeypatch.setattr(worker_store._Chief, "patience", 0.01)
    yield asked
    answers.set()


def test_a_value_is_not_stored_for_ever(silent_chief):
    with pytest.raises(tf.errors.UnavailableError, match="worker 0 has not answered for 0.01 sec"):
        worker_store.set_key("key", "value")
    assert silent_chief == [("TFE_InsertConfigKeyValue", b"key", b"value")]


def test_a_value_is_not_deleted_for_ever(silent_chief):
    worker_store.delete_key("key")
    assert silent_chief == [("TFE_DeleteConfigKeyValue", b"key")]


def test_an_error_of_the_chief_is_raised(monkeypatch):
    def call(function, *arguments):
        raise tf.errors.AlreadyExistsError(None, None, "stored before")

    monkeypatch.setattr(worker_store, "call_c_function", call)
    with pytest.raises(tf.errors.AlreadyExistsError):
        worker_store.set_key("key", "value")
    worker_store.delete_key("key")
