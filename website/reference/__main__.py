"""Write the generated pages: `python -m website.reference`."""

from __future__ import annotations

from pathlib import Path

from website.reference import FOLDER, PAGES, page

if __name__ == "__main__":
    for name in PAGES:
        path = Path(__file__).parents[2] / FOLDER / name
        path.write_text(page(name), encoding="utf-8")
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
