"""The command line, with a module for each command."""

from fastdecode_lib.cli.main import main as main
