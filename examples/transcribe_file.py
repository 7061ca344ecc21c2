"""Transcribe a whole file with the SDK: `python examples/transcribe_file.py talk.mp3 [URL]`."""

from __future__ import annotations

import sys

from sensorium.client import Client, SDKError


def main(path: str, url: str | None = None) -> None:
    """Print the text, then when each segment and word was spoken."""
    with Client(url) as client:
        transcript = client.transcribe(path, timestamp_granularities=["segment", "word"])
    print(transcript.text)
    print(f"\n{transcript.duration:.1f} s of audio, language {transcript.language}")
    for segment in transcript.segments:
        print(f"{segment.start:7.2f} – {segment.end:6.2f}  {segment.text.strip()}")
    for word in transcript.words:
        print(f"{word.start:7.2f} – {word.end:6.2f}    {word.word.strip()}")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:3])
    except (SDKError, OSError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
