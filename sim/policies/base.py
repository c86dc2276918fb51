"""What every policy's configuration is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PolicyConfig(BaseModel):
    """A frozen configuration that is also the policy: its fields are the knobs, its method the decision."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
