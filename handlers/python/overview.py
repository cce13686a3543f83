"""Draws pictures as one small picture: reads a list of them as JSON, prints a JPEG.

Each is a list of paths, of which one has the picture, and the size of its file in bytes. A single picture is only made
smaller. Several get a cell each, row by row, below their numbers and names; one that cannot be read is a grey square.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import time

LARGEST = 1_000_000
"""The most bytes of the result."""
SIDE = 1200
"""The most pixels of one side of it."""
SECONDS = 8.0
"""After this time, what is left is not drawn."""
LABEL = 14
"""Pixels of the line above a picture."""
GAP = 10
"""Pixels between cells."""
LEAST = 100
"""The least pixels of a cell's side: room for a name."""
LETTER = 7
"""Pixels of a letter."""
BYTES_PER_PIXEL = 8
"""Of memory that it takes to make a picture smaller."""


def main() -> None:
    # If memory runs out, the kernel ends this process, not the one that has the session's variables.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    started = time.monotonic()
    wanted = json.load(sys.stdin)
    from PIL import Image, ImageDraw

    # Beyond twice this number, Pillow refuses to read a picture.
    Image.MAX_IMAGE_PIXELS = int(os.environ.get("SANDBOX_MEMORY") or 1 << 29) // BYTES_PER_PIXEL // 2
    columns = math.ceil(math.sqrt(len(wanted)))
    side = SIDE // columns
    if columns == 1:
        sheet = made_small(*wanted[0], side)
    else:
        made = []
        for paths, size in wanted:
            try:
                if time.monotonic() - started > SECONDS:
                    raise TimeoutError
                made.append(made_small(paths, size, side - GAP))
            except Exception:  # whatever a file contains
                made.append(Image.new("RGB", (LEAST, LEAST), "lightgrey"))
        # Cells are as large as the largest picture needs: plots are wider than high.
        across = max(LEAST, *(picture.width for picture in made)) + GAP
        down = max(picture.height for picture in made) + LABEL + GAP
        sheet = Image.new("RGB", (across * columns, down * math.ceil(len(made) / columns)), "white")
        draw = ImageDraw.Draw(sheet)
        for number, picture in enumerate(made):
            name = f"{number + 1}: {os.path.basename(wanted[number][0][0])}"
            left, top = number % columns * across, number // columns * down
            draw.text((left + GAP // 2, top), shortened(name, across), "black")
            sheet.paste(picture, (left + (across - picture.width) // 2, top + LABEL))
    for quality in (88, 60, 30):
        printed = io.BytesIO()
        sheet.save(printed, "JPEG", quality=quality)
        if printed.tell() <= LARGEST:
            break
    sys.stdout.buffer.write(printed.getvalue())


def made_small(paths: list[str], size: int, side: int):
    """The picture with at most so many pixels a side, on white."""
    from PIL import Image, ImageOps

    path = next(path for path in paths if os.path.isfile(path) and os.path.getsize(path) == size)
    with Image.open(path) as picture:
        if picture.mode in ("P", "1"):  # colours of a table cannot be mixed
            picture = picture.convert("RGBA")
        elif picture.mode.startswith("I"):  # 16 bits a pixel
            picture = picture.convert("I").point(lambda value: value * (1 / 256)).convert("L")
        picture.thumbnail((side, side))
        picture = ImageOps.exif_transpose(picture).convert("RGBA")
    white = Image.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture)
    return white


def shortened(name: str, width: int) -> str:
    """The name as far as it can be written in so many pixels: its beginning and its end."""
    text, most = name.encode("ascii", "replace").decode(), width // LETTER
    return text if len(text) <= most else f"{text[: most - 12]}..{text[-10:]}"


if __name__ == "__main__":
    main()
