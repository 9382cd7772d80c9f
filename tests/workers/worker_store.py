"""A store of values that workers share, which are threads here."""

import threading


class WorkerStore:
    """A dictionary; as in TensorFlow's store, no key is set twice."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()

    def set_key(self, key, value):
        with self.changed:
            if key in self.values:
                raise RuntimeError("it is there")
            self.values[key] = value
            self.changed.notify_all()

    def get_key(self, key, *, timeout_ms):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, timeout_ms / 1000)
            return self.values.get(key)

    def delete_key(self, key):
        with self.changed:
            del self.values[key]
