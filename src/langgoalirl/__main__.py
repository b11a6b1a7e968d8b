"""`python -m langgoalirl` is the command `langgoalirl`."""

import sys

from langgoalirl.cli import main

sys.exit(main())
