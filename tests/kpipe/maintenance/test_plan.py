"""Which files a compaction rewrites."""

from __future__ import annotations

import random

from kpipe.maintenance.facts import Fingerprint
from kpipe.maintenance.plan import FileFacts, Limits, groups, rounds

MB = 1 << 20
LIMITS = Limits(target_file_mb=100, min_input_files=3, delete_ratio=0.3)


def sizes(files: list[FileFacts], limits: Limits = LIMITS) -> list[list[int]]:
    return [[file.size // MB for file in group] for group in groups(files, limits)]


def test_small_files_are_grouped_up_to_the_target() -> None:
    files = [FileFacts(10, size * MB) for size in (30, 30, 30, 30, 90, 20, 20)]
    assert sizes(files) == [[30, 30, 30], [30, 20, 20]]


def test_few_small_files_stay() -> None:
    assert sizes([FileFacts(10, MB), FileFacts(10, MB)]) == []
    assert sizes([FileFacts(10, 74 * MB)] * 9) == []  # no two of them fit into a file


def test_files_of_several_partitions_stay_apart() -> None:
    files = [FileFacts(10, (at + 1) * MB, division=at % 2) for at in range(6)]
    assert sizes(files) == [[1, 3, 5], [2, 4, 6]]


def test_a_file_with_many_deleted_rows_is_rewritten_alone() -> None:
    assert sizes([FileFacts(10, 100 * MB, deleted=3), FileFacts(10, 100 * MB, deleted=2)]) == [[100]]
    assert sizes([FileFacts(10, 100 * MB, deleted=10)]) == [[100]]
    assert sizes([FileFacts(0, MB), FileFacts(10, MB, deleted=1)]) == []


def test_files_that_cannot_be_rewritten_stay() -> None:
    assert sizes([FileFacts(10, MB, is_movable=False)] * 9) == []


def test_repeated_compactions_end() -> None:
    """Each rewriting leaves fewer files, or fewer deleted rows."""
    source = random.Random(1)
    for _ in range(200):
        limits = Limits(source.choice([1, 10, 100]), source.randint(2, 6), source.choice([0.01, 0.3, 1.0]))
        files = []
        for _ in range(source.randint(0, 40)):
            rows = source.randint(0, 50)
            files.append(FileFacts(rows, source.randint(1, 120 * MB), source.randint(0, rows), source.randint(0, 2)))
        for _ in range(20):
            chosen = groups(files, limits)
            if not chosen:
                break
            gone = {id(file) for group in chosen for file in group}
            files = [file for file in files if id(file) not in gone]
            for group in chosen:
                rows, size = sum(file.rows - file.deleted for file in group), sum(file.left for file in group)
                files += [FileFacts(rows, size, 0, group[0].division)] if rows else []
        else:
            raise AssertionError(f"still {len(chosen)} groups")


def test_rounds_are_bounded() -> None:
    chosen = [[FileFacts(1, size * MB)] for size in (300, 500, 400, 2000, 1)]
    assert [[group[0].size // MB for group in part] for part in rounds(chosen, 1000 * MB)] == [[300, 500], [400], [2000], [1]]


def test_fingerprints_add_up_in_any_order() -> None:
    parts = [Fingerprint(1, (2**64 - 1, 5), 7), Fingerprint(2, (3, 2**63), 2**64 - 1), Fingerprint(3, (4, 2**63), 0)]
    total = parts[0] + parts[1] + parts[2]
    assert total == parts[2] + (parts[0] + parts[1]) == Fingerprint(6, (6, 5), 6)
