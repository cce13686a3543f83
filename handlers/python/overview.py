"""Draws pictures as one small picture: reads a list of them as JSON, prints a JPEG.

Each is a list of paths, of which one has the picture, and the size of its file in bytes. A single picture is only made
smaller. Several get a cell each, row by row, with their numbers and names below.
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
"""After this time, the cells that are left get only their names."""
LABEL = 14
"""Pixels of the line below a cell."""
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
    rows = math.ceil(len(wanted) / columns)
    cell, label = SIDE // columns, LABEL if len(wanted) > 1 else 0
    if not label:
        sheet = made_small(*wanted[0], cell)
    else:
        sheet = Image.new("RGB", (cell * columns, (cell + label) * rows), "white")
        draw = ImageDraw.Draw(sheet)
        for number, (paths, size) in enumerate(wanted):
            left, top = number % columns * cell, number // columns * (cell + label)
            name = f"{number + 1}: {os.path.basename(paths[0])}".encode("ascii", "replace").decode()
            try:
                if time.monotonic() - started > SECONDS:
                    raise TimeoutError
                picture = made_small(paths, size, cell - 4)
                sheet.paste(picture, (left + (cell - picture.width) // 2, top + (cell - picture.height) // 2))
            except Exception:  # whatever a file contains
                name += " (not shown)"
            draw.text((left + 4, top + cell), name[: cell // 7], fill="black")
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


if __name__ == "__main__":
    main()
