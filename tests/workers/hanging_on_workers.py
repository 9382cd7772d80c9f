"""A case in which every worker waits for ever."""

import threading


def prepare(strategy, folder):
    def wait_alone(name):
        threading.Event().wait()

    return wait_alone
