"""The fields of a model folder's config.json and generation_config.json that citer reads."""

from typing import Any

from pydantic import BaseModel, PositiveInt

from citer.models.families import ModelType


class EosSetting(BaseModel):
    """The EOS ids, as config.json and generation_config.json store them."""

    eos_token_id: int | list[int] | None = None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        setting = self.eos_token_id
        return tuple(setting if isinstance(setting, list) else [] if setting is None else [setting])


class Config(EosSetting):
    """Fields that citer needs or refuses. transformers would replace missing ones by defaults."""

    model_type: ModelType
    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    max_position_embeddings: PositiveInt
    quantization_config: dict[str, Any] | None = None
