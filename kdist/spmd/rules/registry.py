"""The table of sharding rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RULES: dict[str, Callable[..., Any]] = {}


def rule(*types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the rule of these types of operations."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in types:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = function
        return function

    return register
