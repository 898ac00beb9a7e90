"""Populations of KV: sessions that generate, pause and return, and prompt heads that many requests share.

A new kind is one file with one class, and one line in `POPULATIONS`.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated

from pydantic import Field

from kvmodel.workloads.sessions import Sessions
from kvmodel.workloads.shared_prefix import SharedPrefix

POPULATIONS = (Sessions, SharedPrefix)
Population = Annotated[reduce(or_, POPULATIONS), Field(discriminator="kind")]
