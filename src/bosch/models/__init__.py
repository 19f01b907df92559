"""Getting a model: by name from the cache, from a directory, or from the Hugging Face hub."""

from bosch.models.loading import load_model, random_model

__all__ = ["load_model", "random_model"]
