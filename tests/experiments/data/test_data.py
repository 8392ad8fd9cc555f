"""Data sets put into place, checked, and dealt out."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from commeff.experiments.cli.data import app
from commeff.experiments.data import manifest
from commeff.experiments.data.folder import DataError
from commeff.experiments.data.manifest import DataSet
from commeff.experiments.data.prepare import install, offered, prepare, unpack
from commeff.experiments.data.skew import class_counts, draw, heterogeneity
from commeff.experiments.data.verify import verify
from commeff.experiments.tasks.partition import split
from tests.owned import run

CONTENT = {"first": b"one", "second.txt": b"two"}
unpacks = pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="Python before 3.11.4 cannot unpack safely")
runner = CliRunner()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> dict[str, DataSet]:
    """Two small data sets in the place of the real ones: of one the publisher's sums are known."""
    sums = {name: md5(content) for name, content in CONTENT.items()}
    small = {
        "exact": DataSet("Exact", "exact/raw", sums, "a page", subset="part"),
        "part": DataSet("Part", "part", {name: md5(content[:2]) for name, content in CONTENT.items()}, "a page"),
        "loose": DataSet("Loose", "loose", sums, "a page", official=False),
    }
    for module in ("commeff.experiments.data.manifest", "commeff.experiments.data.verify"):
        monkeypatch.setattr(f"{module}.DATA_SETS", small)
    assert manifest.DATA_SETS is small
    return small


def folder(path: Path, content: dict[str, bytes] = CONTENT) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (path / name).write_bytes(data)
    return path


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_checking_data_imports_no_torch_and_tasks_import_no_pillow() -> None:
    code = (
        "import sys, commeff.experiments.cli.data\n"
        "from commeff.experiments.data import prepare, skew, verify\n"
        "assert not {'torch', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "import commeff.experiments.tasks\n"
        "assert not {'PIL', 'sklearn', 'pandas'} & set(sys.modules)\n"
    )
    run([sys.executable, "-c", code], check=True)


def test_a_folder_is_complete_incomplete_corrupt_unknown_or_a_subset(sets: dict[str, DataSet], tmp_path: Path) -> None:
    def found(name: str) -> tuple[str, str, bool]:
        (finding,) = verify(tmp_path, [name])
        return finding.state, finding.checksums, finding.usable

    assert [finding.state for finding in verify(tmp_path)] == ["missing"] * 3
    assert found("exact") == ("missing", "", False)
    place = folder(tmp_path / "exact" / "raw")
    assert found("exact") == ("complete", "good", True)
    (place / "first").unlink()
    assert found("exact") == ("incomplete", "good", False)
    folder(place, {"first": b"other"})
    assert found("exact") == ("complete", "corrupt", False)
    folder(tmp_path / "loose", {"first": b"other"})
    assert found("loose") == ("incomplete", "unknown", False)
    folder(tmp_path / "loose", {"second.txt": b"two"})
    assert found("loose") == ("complete", "unknown", True)
    folder(place, {name: content[:2] for name, content in CONTENT.items()})
    assert found("exact") == ("subset", "good", True)
    assert verify(tmp_path, ["exact"])[0].title == "Part"


def as_folder(path: Path) -> Path:
    return folder(path / "deep" / "inside").parent


def as_archive(path: Path) -> Path:
    return archive(path / "all.tar.gz", {f"x/{name}": content for name, content in CONTENT.items()} | {"y": b"z"})


def as_archive_that_climbs(path: Path) -> Path:
    return archive(path / "all.tar", {f"../../{name}": content for name, content in CONTENT.items()})


@pytest.mark.parametrize("source", [as_folder, as_archive, as_archive_that_climbs])
def test_what_is_prepared_verifies_and_lies_only_in_its_place(
    source: Callable[[Path], Path], sets: dict[str, DataSet], tmp_path: Path
) -> None:
    given, to = source(tmp_path), tmp_path / "to"
    for _ in range(2):
        assert prepare("exact", given, to, download=False).folder == to / "exact" / "raw"
    assert verify(to, ["exact"])[0].usable
    assert sorted(path.name for path in to.rglob("*") if path.is_file()) == sorted(CONTENT)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"first": b"one"}, r"it holds no second\.txt\): get it from a page"),
        ({"first": b"bad", "second.txt": b"two"}, "first: another MD5 sum"),
        ({}, "it holds no first, second.txt"),
    ],
)
def test_a_bad_copy_is_refused_and_nothing_is_written(
    content: dict[str, bytes], reason: str, sets: dict[str, DataSet], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=reason):
        install(sets["exact"], folder(tmp_path / "from", content), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_where_good_copies_differ_an_unknown_sum_is_reported_and_the_known_one_preferred(
    sets: dict[str, DataSet], tmp_path: Path
) -> None:
    folder(tmp_path / "a", {"first": b"other line ends"})
    folder(tmp_path / "b", {"first": b"one", "second.txt": b"also other"})
    assert install(sets["loose"], tmp_path, tmp_path / "to").unverified == ("second.txt",)
    assert (tmp_path / "to" / "loose" / "first").read_bytes() == b"one"


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    data = DataSet("One", "one", {"input.txt": md5(b"text")}, "a page")
    (tmp_path / "download(1).txt").write_bytes(b"text")
    assert install(data, tmp_path / "download(1).txt", tmp_path).folder == tmp_path / "one"
    assert (tmp_path / "one" / "input.txt").read_bytes() == b"text"


@unpacks
def test_a_damaged_archive_is_refused_in_one_line(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", {"first": bytes(range(256)) * 400})
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataError, match=r"a.tar.gz cannot be (read|unpacked)") as refusal:
        list(offered(DataSet("", "", {"first": ""}, ""), path))
    assert "\n" not in str(refusal.value)
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar.gz"]


@unpacks
def test_unpacking_is_whole_or_not_at_all_and_never_climbs_out(tmp_path: Path) -> None:
    good = archive(tmp_path / "good.tar", {"train/a/0.jpg": b"0", "test/a/0.jpg": b"1"})
    assert (unpack(good, tmp_path / "images") / "train" / "a" / "0.jpg").read_bytes() == b"0"
    evil = archive(tmp_path / "evil.tar", {"train/a/0.jpg": b"0", "../../climbed": b"1"})
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(evil, tmp_path / "deep" / "images")
    assert not (tmp_path / "climbed").exists()
    assert not list((tmp_path / "deep").iterdir())


def test_a_python_that_cannot_unpack_safely_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with pytest.raises(DataError, match=r"a.tar cannot be unpacked safely before Python 3\.11\.4"):
        unpack(archive(tmp_path / "a.tar", {"train/a/0.jpg": b"0"}), tmp_path / "images")
    assert not (tmp_path / "images").exists()


@unpacks
def test_images_are_unpacked_into_the_cache_or_where_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMEFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COMMEFF_DATA", str(tmp_path / "data"))
    with pytest.raises(ValueError, match=r"no archive .*cifar10-jpeg\.tar\.xz: give it with --from"):
        prepare("cifar10_jpeg", None, None, download=False)
    (tmp_path / "data" / "cifar-10-jpeg").mkdir(parents=True)
    archive(tmp_path / "data" / "cifar-10-jpeg" / "cifar10-jpeg.tar.xz", {"train/a/0.jpg": b"0"})
    assert prepare("cifar10_jpeg", None, None, download=False).folder == tmp_path / "cache" / "cifar-10-jpeg"
    source = tmp_path / "data" / "cifar-10-jpeg" / "cifar10-jpeg.tar.xz"
    there = prepare("cifar10-jpeg", source, tmp_path / "there", download=False).folder
    assert (there / "train" / "a" / "0.jpg").is_file()


def test_files_are_downloaded_only_when_asked_for(sets: dict[str, DataSet], tmp_path: Path) -> None:
    """From an address, here of a file, and only those of the right sum; one by one, or in an archive."""
    source = archive(tmp_path / "source.tar.gz", CONTENT)
    single = {file.as_uri(): md5(file.read_bytes()) for file in sorted(folder(tmp_path / "single").iterdir())}
    sets["single"] = DataSet("single", "single", sets["exact"].files, "a page", addresses=single)
    good, address = md5(source.read_bytes()), source.as_uri()
    for name, where, digest in (("there", address, good), ("other", address, "0"), ("gone", f"{address}x", "")):
        sets[name] = DataSet(name, name, sets["exact"].files, "a page", addresses={where: digest})
    with pytest.raises(ValueError, match="nothing to prepare there from: give its files with --from"):
        prepare("there", None, tmp_path, download=False)
    for name in ("there", "single"):
        there = prepare(name, None, tmp_path / "data", download=True).folder
        assert {file.name: file.read_bytes() for file in there.iterdir()} == CONTENT
    for name, reason in (("other", "another MD5 sum"), ("gone", "No such file")):
        with pytest.raises(DataError, match=rf"source\.tar\.gzx? cannot be downloaded \(.*{reason}"):
            prepare(name, None, tmp_path, download=True)
        assert not (tmp_path / name).exists()
    with pytest.raises(ValueError, match="loose is not downloaded: get it from a page"):
        prepare("loose", None, tmp_path, download=True)


def test_a_download_that_breaks_off_is_told_of(
    sets: dict[str, DataSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise IncompleteRead(b"on", 1)

    monkeypatch.setattr("commeff.experiments.data.prepare.urlopen", lambda address, timeout: Broken())
    sets["exact"] = DataSet("Exact", "exact", sets["exact"].files, "a page", addresses={"http://here/a": ""})
    with pytest.raises(DataError, match=r"http://here/a cannot be downloaded \(IncompleteRead"):
        prepare("exact", None, tmp_path, download=True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["prepare", "imagenet"], "data set must be one of fashion_mnist"),
        (["prepare", "a9a"], "give --to FOLDER, or set COMMEFF_DATA"),
        (["prepare", "a9a", "--to", "x"], "nothing to prepare a9a from: give its files with --from"),
        (["prepare", "a9a", "--from", "nowhere", "--to", "x"], "no file or folder nowhere"),
        (["verify", "imagenet", "--data-dir", "."], "data set must be one of"),
        (["verify"], "no data folder to look for data sets"),
        (["verify", "--data-dir", "nowhere"], "no folder nowhere"),
        (["partition", "task=quadratic"], "Quadratic has no labelled samples"),
        (["partition", "task=digits", "task.alpha=-1"], "alpha must be above 0"),
        (["partition", "--figure", "shares.xyz"], "xyz"),
    ],
)
def test_refusals_are_one_line_and_exit_with_2(words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMMEFF_DATA", raising=False)
    done = runner.invoke(app, words)
    assert done.exit_code == 2
    assert done.stderr.startswith("commeff: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_verify_prints_a_table_or_json_and_its_exit_code_is_the_verdict(
    sets: dict[str, DataSet], tmp_path: Path
) -> None:
    folder(tmp_path / "exact" / "raw")
    words = ["verify", "--data-dir", str(tmp_path)]
    assert runner.invoke(app, words).exit_code == 0
    assert runner.invoke(app, [*words, "exact"]).exit_code == 0
    assert runner.invoke(app, [*words, "loose"]).exit_code == 1
    rows = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert [(row["name"], row["state"], row["usable"]) for row in rows] == [
        ("exact", "complete", True),
        ("part", "missing", False),
        ("loose", "missing", False),
    ]
    folder(tmp_path / "exact" / "raw", {"first": b"bad"})
    assert runner.invoke(app, words).exit_code == 1


def test_partition_shows_every_sample_once(tmp_path: Path) -> None:
    words = ["partition", "task=digits", "workers=5", "task.alpha=0.3", "--json"]
    done = runner.invoke(app, [*words, "--figure", str(tmp_path / "shares.png")])
    shown = json.loads(done.stdout)
    assert [len(row["counts"]) for row in shown["workers"]] == [10] * 5
    assert sum(sum(row["counts"]) for row in shown["workers"]) == sum(r["samples"] for r in shown["workers"]) == 1077
    assert shown["heterogeneity"] == heterogeneity(np.array([row["counts"] for row in shown["workers"]]))
    assert (tmp_path / "shares.png").stat().st_size > 1000
    table = runner.invoke(app, words[:-1]).stdout.splitlines()
    assert table[0] == f"Digits, 5 workers, heterogeneity {shown['heterogeneity']:.3f}"
    assert [int(cell.replace(",", "")) for cell in table[2].split()] == [
        0,
        shown["workers"][0]["samples"],
        *shown["workers"][0]["counts"],
    ]


def test_heterogeneity_is_0_for_equals_and_1_less_1_over_n_for_strangers_and_falls_with_alpha() -> None:
    labels = np.repeat(np.arange(8), 800)

    def measured(rule: str, alpha: float, seed: int) -> float:
        return heterogeneity(class_counts(labels, split(rule, labels, 8, seed, alpha, 1).indices))

    assert measured("shards", 1.0, 0) == pytest.approx(1 - 1 / 8)
    assert measured("dirichlet", 1e7, 0) < 0.01
    means = [np.mean([measured("dirichlet", alpha, seed) for seed in range(8)]) for alpha in (0.05, 0.3, 2.0, 20.0)]
    assert means == sorted(means, reverse=True)
    assert 0 < means[-1] < means[0] < 1 - 1 / 8 + 1e-9


def test_a_figure_that_a_full_disk_does_not_take_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"a\.png cannot be written \(No space left on device\); choose another file"):
        draw(np.ones((2, 3), int), ["a", "b", "c"], "title", tmp_path / "a.png")
