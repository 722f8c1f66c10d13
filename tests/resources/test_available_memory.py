"""The memory limits of cgroups, from folders laid out as Linux does."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.available_memory import available_bytes

_MB = 1 << 20
_NONE_V1 = 9223372036854771712  # what v1 shows for no limit


def _system(root: Path, cgroup: str, files: dict[str, object]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("0::/", {"sys/fs/cgroup/memory.max": 512 * _MB}, 512 * _MB),
        ("0::/a/b", {"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/b/memory.max": 256 * _MB}, 256 * _MB),
        ("0::/a/b", {"sys/fs/cgroup/a/memory.max": 128 * _MB, "sys/fs/cgroup/a/b/memory.max": 256 * _MB}, 128 * _MB),
        ("0::/a/b/c", {"sys/fs/cgroup/memory.max": 64 * _MB}, 64 * _MB),
        ("4:memory:/docker/x", {"sys/fs/cgroup/memory/memory.limit_in_bytes": 300 * _MB}, 300 * _MB),
        (
            "4:cpu,memory:/docker/x",
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": _NONE_V1,
                "sys/fs/cgroup/memory/docker/memory.limit_in_bytes": 400 * _MB,
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": 500 * _MB,
            },
            400 * _MB,
        ),
        (
            "4:memory:/x\n0::/y",
            {
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": 400 * _MB,
                "sys/fs/cgroup/unified/y/memory.max": 350 * _MB,
            },
            350 * _MB,
        ),
        ("0::/../../other", {"sys/fs/cgroup/memory.max": 90 * _MB, "other/memory.max": 1}, 90 * _MB),
    ],
    ids=["v2", "v2 nested", "v2 parent", "v2 unseen path", "v1 container", "v1 nested", "hybrid", "out of the namespace"],
)
def test_smallest_limit_along_the_path(tmp_path: Path, cgroup: str, files: dict[str, object], limit: int) -> None:
    assert available_bytes(_system(tmp_path, cgroup, files)) == limit


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("", {}),
        ("0::/", {"sys/fs/cgroup/memory.max": "max"}),
        ("4:memory:/", {"sys/fs/cgroup/memory/memory.limit_in_bytes": _NONE_V1}),
        ("nonsense\n::\n7:cpu:/a", {"sys/fs/cgroup/memory.max": "", "sys/fs/cgroup/a/memory.max": 1}),
    ],
)
def test_machine_without_limits(tmp_path: Path, cgroup: str, files: dict[str, object]) -> None:
    assert available_bytes(_system(tmp_path, cgroup, files)) == available_bytes(tmp_path / "nothing") >= 64 * _MB
