"""Write the small pictures in `data/`: one of things, one of a word, and a clip, with what is asked of them.

    python examples/training/make_demo_pictures.py

They are drawn as the training pictures of tiny-qwen3-vl are, but larger; the red circle of `shapes.png` is a
combination that it was never trained on. `data/pictures.json` has the questions and the right answers.
Needs PyAV. `examples/demo.py` shows them.
"""

import json
import random
from pathlib import Path

import av
from drawing import Pixels, draw, draw_clip
from PIL import Image
from scenes import Clip, Event, Scene, Sign, Thing

FOLDER = Path(__file__).parents[1] / "data"
HEIGHT, WIDTH = 192, 256
NUM_FRAMES, FRAMES_PER_S = 6, 2
SMALL, LARGE = 0.082, 0.145

SHAPES = Scene(
    "gray",
    (
        Thing("circle", "red", "large", 1 / 6, 1 / 6, LARGE),
        Thing("star", "yellow", "small", 1 / 2, 1 / 2, SMALL),
        Thing("square", "blue", "large", 5 / 6, 5 / 6, LARGE),
    ),
)
SIGN = Scene("pink", sign=Sign("pizza", "green"))
MOVING = Clip(
    Scene(
        "gray",
        (
            Thing("circle", "green", "large", 1 / 6, 1 / 6, LARGE),
            Thing("square", "blue", "large", 1 / 2, 5 / 6, LARGE),
        ),
    ),
    (Event(0, "moves", 0.0, 1.0, "right"),),
)
QUESTIONS = {
    "shapes.png": [
        ("What do you see?", "I see a large red circle, a small yellow star and a large blue square."),
        ("What color is the star?", "The star is yellow."),
        ("Where is the blue square?", "The blue square is in the bottom right."),
        ("How many things are there?", "There are three things."),
    ],
    "sign.png": [("What does it say?", "It says pizza."), ("What color is the text?", "The text is green.")],
    "moving.mp4": [
        ("What happens?", "The green circle moves to the right."),
        ("Does the blue square move?", "No."),
    ],
}


def main() -> None:
    """Write all of them."""
    for name, scene in (("shapes.png", SHAPES), ("sign.png", SIGN)):
        Image.fromarray(draw(scene, HEIGHT, WIDTH, random.Random(name))).save(FOLDER / name, optimize=True)
    rng = random.Random("moving.mp4")
    write_film(FOLDER / "moving.mp4", draw_clip(MOVING, NUM_FRAMES, HEIGHT, WIDTH, rng))
    questions = {
        name: [{"question": question, "answer": answer} for question, answer in pairs]
        for name, pairs in QUESTIONS.items()
    }
    (FOLDER / "pictures.json").write_text(json.dumps(questions, indent=2) + "\n", "utf-8")


def write_film(path: Path, frames: list[Pixels]) -> None:
    """An MP4 of so many frames a second, with one thread, so that its bytes are the same every time."""
    with av.open(str(path), "w") as film:
        stream = film.add_stream("libx264", rate=FRAMES_PER_S, options={"crf": "26", "threads": "1"})
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
        for frame in frames:
            film.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        film.mux(stream.encode())


if __name__ == "__main__":
    main()
