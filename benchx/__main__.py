"""`python -m benchx`."""

from benchx.cli.app import main

main()
