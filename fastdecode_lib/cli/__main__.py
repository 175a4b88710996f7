"""``python -m fastdecode_lib.cli`` does what ``fastdecode`` does."""

import sys

from fastdecode_lib.cli.main import main

sys.exit(main())
