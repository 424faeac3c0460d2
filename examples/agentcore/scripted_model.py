"""A model that says what is written for it, at the pace of a real one: for work without a cloud."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from strands.models.model import Model
from strands.types.content import Messages
from strands.types.streaming import StreamEvent

__all__ = ["ScriptedModel"]


class ScriptedModel(Model):
    """Answers every prompt with ``answer``, in about ``tokens_per_s`` pieces a second."""

    def __init__(self, answer: str, *, tokens_per_s: float = 30.0) -> None:
        self.answer = answer
        self.tokens_per_s = tokens_per_s

    def update_config(self, **model_config: Any) -> None:
        for name, value in model_config.items():
            setattr(self, name, value)

    def get_config(self) -> dict[str, Any]:
        return {"answer": self.answer, "tokens_per_s": self.tokens_per_s}

    async def stream(
        self, messages: Messages, *args: Any, **kwargs: Any
    ) -> AsyncIterable[StreamEvent]:
        # A word of English is about a token, a long one two.
        tokens = re.findall(r"\s*\S{1,8}", self.answer)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for token in tokens:
            await asyncio.sleep(1 / self.tokens_per_s)
            yield {"contentBlockDelta": {"delta": {"text": token}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
        usage = {"inputTokens": 0, "outputTokens": len(tokens), "totalTokens": len(tokens)}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}

    async def structured_output(
        self, output_model: Any, prompt: Messages, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError("what is written for it is plain text")
        yield {}
