"""Ask a served vision model about a picture: `python examples/chat_with_image.py photo.jpg QUESTION [URL]`.

OpenAI's own client (`pip install openai`), for `sensorium serve Qwen/Qwen3-VL-2B-Instruct`. While the server
remembers a picture it is not encoded or prefilled again; the last line tells how much was there already.
"""

import base64
import mimetypes
import sys
from pathlib import Path

from openai import OpenAI, OpenAIError
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionUserMessageParam


def main(path: str, question: str, url: str = "http://127.0.0.1:8000") -> None:
    """Print the answer of the server's first model while it is made."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    data = base64.b64encode(Path(path).read_bytes()).decode()
    picture = f"data:{mimetypes.guess_type(path)[0] or 'image/jpeg'};base64,{data}"
    content: list[ChatCompletionContentPartParam] = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "text", "text": question},
    ]
    message: ChatCompletionUserMessageParam = {"role": "user", "content": content}
    for chunk in client.chat.completions.create(
        model=client.models.list().data[0].id, messages=[message], max_tokens=64,
        stream=True, stream_options={"include_usage": True},
    ):  # fmt: skip
        print("".join(choice.delta.content or "" for choice in chunk.choices), end="", flush=True)
        if chunk.usage and (details := chunk.usage.prompt_tokens_details):
            print(f"\n({details.cached_tokens} of {chunk.usage.prompt_tokens} prompt tokens were there)")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4]) if len(sys.argv) > 2 else sys.exit(__doc__)
    except (OpenAIError, OSError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
