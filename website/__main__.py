"""Build the documentation site: `make docs`. Needs the packages of requirements-docs.lock, not kpipe."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from website.links import broken_links

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "docs"
#: What the site contains, by its path in the repository: pages, and the files that they link.
CONTENT = (
    "*.md",
    "LICENSE",
    "docs/**/*",
    "bench/results/*",
    "examples/**/*",
    "deploy/**/*",
    "transforms/README.md",
    "transforms/programs/*",
)


def copy_content(target: Path) -> None:
    """Copy pages and linked files to an empty folder, under their paths in the repository."""
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted({path for pattern in CONTENT for path in ROOT.glob(pattern) if path.is_file()}):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def main() -> int:
    """Build the site; return 1 if Zensical reports an issue or a link leads nowhere."""
    site = BUILD / "site"
    shutil.rmtree(site, ignore_errors=True)
    copy_content(BUILD / "source")
    config = shutil.copyfile(ROOT / "website" / "zensical.toml", BUILD / "zensical.toml")
    zensical = Path(sys.executable).with_name("zensical")
    # --strict reports links to missing pages and headings. It does not report missing files and images.
    if subprocess.run([zensical, "build", "--clean", "--strict", "--config-file", config], check=False).returncode:
        return 1
    broken = broken_links(site)
    for page, target in broken:
        print(f"{page}: {target}: link to a missing file or heading", file=sys.stderr)
    print(f"{sum(1 for _ in site.rglob('*.html'))} pages in {site.relative_to(ROOT)}, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
