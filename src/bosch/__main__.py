"""`python -m bosch`, for `accelerate launch -m bosch train`."""

from bosch.cli import main

raise SystemExit(main())
