"""Live transcription with the async SDK: `python examples/live_file.py recording.wav [URL]`.

The recording is sent at the pace it was spoken; text appears while it goes on. In your own program the chunks
come from a microphone or a telephone line: any iterable of bytes, plain or async. The same code runs under
trio (`trio.run`), and `Client.realtime` is the same without `async`.
"""

from __future__ import annotations

import asyncio
import sys

from sensorium.client import AsyncClient, Completed, Delta, Failed, SDKError
from sensorium.client.audio import read_wav


async def main(path: str, url: str | None = None) -> None:
    """Print text as it is recognised, one line a turn."""
    audio = read_wav(path)
    async with AsyncClient(url) as client, client.realtime(sample_rate=audio.rate) as session:
        async for event in session.transcribe(audio.chunks(), speed=1.0):
            match event:
                case Delta(delta=text):
                    print(text, end="", flush=True)
                case Completed(transcript=text):
                    print(f"\n→ {text}")
                case Failed(error=error):
                    print(f"\n! {error.message}")
                case _:
                    pass  # speech started and stopped, commits, …


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:3]))
    except SDKError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
