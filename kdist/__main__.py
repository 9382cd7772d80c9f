"""`python -m kdist`."""

from .cli import main

main()
