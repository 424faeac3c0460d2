"""The files of Kokoro-82M: finding, fetching and checking them."""

from utterwire_server.model.folder import ModelError, ModelFolder, find_model_folder

__all__ = ["ModelError", "ModelFolder", "find_model_folder"]
