"""Options of commands that are not settings, each with a strategy for its values."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from .odd_values import ODD_NUMBERS, ODD_PATHS, ODD_TEXTS

LISTS = ODD_TEXTS | ODD_NUMBERS | st.sampled_from(["8", "8,16", "1,2", "1000,2000", "2,1,64"])
LAUNCH = {
    "--workers": ODD_NUMBERS | ODD_TEXTS | st.just("auto"),
    "--max-restarts": ODD_NUMBERS,
    "--grace": ODD_NUMBERS,
    "--log-dir": ODD_PATHS,
}
SWEEP = {
    "--output": ODD_PATHS,
    "--retry-failed": None,
    "--rounds": ODD_NUMBERS,
}
SWEEPS: dict[str, Mapping[str, Any]] = {
    "throughput": {"--batch-sizes": LISTS, "--replicas": LISTS, "--epochs": ODD_NUMBERS},
    "accuracy": {
        "--batch-sizes": LISTS,
        "--replicas": LISTS,
        "--lr-rules": LISTS,
        "--seeds": ODD_NUMBERS,
        "--base-batch": ODD_NUMBERS,
    },
    "scaling": {
        "--replicas": LISTS,
        "--modes": LISTS,
        "--epochs": ODD_NUMBERS,
        "--batch-size": ODD_NUMBERS,
        "--global-batch": ODD_NUMBERS,
    },
}
FIND: dict[str, Mapping[str, Any]] = {
    "batch": {
        "--start": ODD_NUMBERS,
        "--most": ODD_NUMBERS,
        "--replicas": ODD_NUMBERS,
    },
    "rate": {
        "--least": ODD_NUMBERS,
        "--most": ODD_NUMBERS,
        "--steps": ODD_NUMBERS,
        "--batch-size": ODD_NUMBERS,
        "--output": ODD_PATHS,
    },
}
