"""`python -m kdist`."""

from .cli.app import main

main()
