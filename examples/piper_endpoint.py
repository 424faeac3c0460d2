"""A Piper voice as an Utterwire endpoint.

In a clone of this repository:

    pip install '.[server,encoders]' piper-tts
    python -m piper.download_voices en_US-lessac-medium
    python examples/piper_endpoint.py en_US-lessac-medium.onnx
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from piper import PiperVoice, SynthesisConfig
from utterwire_server.adapter import SpeechApp

model = Path(sys.argv[1])
piper = PiperVoice.load(model)


def speak(text: str, voice: str, speed: float) -> Iterator[bytes]:
    for sentence in piper.synthesize(text, SynthesisConfig(length_scale=1 / speed)):
        yield sentence.audio_int16_bytes


app = SpeechApp(speak, voices=[model.stem], sample_rate=piper.config.sample_rate)

if __name__ == "__main__":
    sys.exit(app.serve(port=int(sys.argv[2]) if len(sys.argv) > 2 else 8080))
