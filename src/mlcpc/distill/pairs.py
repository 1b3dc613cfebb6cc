"""The 13 teacher-student pairs of the paper's Tables 1 (networks of one type) and 2 (of different types)."""

from dataclasses import dataclass

from mlcpc.classify import SMALL_RATE

__all__ = ["LABELS", "PAIRS", "Pair"]

#: name in mlcpc.models → the paper's
LABELS = {
    "wrn_40_2": "WRN-40-2",
    "wrn_40_1": "WRN-40-1",
    "wrn_16_2": "WRN-16-2",
    "ShuffleV1": "ShuffleNetV1",
    "ShuffleV2": "ShuffleNetV2",
}


@dataclass(frozen=True)
class Pair:
    """Names in mlcpc.models; `str(pair)` is the paper's.

    >>> str(PAIRS[0]), PAIRS[0].rate
    ('WRN-40-2 → WRN-16-2', 0.05)
    """

    table: str
    """of the paper: table1 or table2"""
    teacher: str
    student: str

    @property
    def labels(self) -> tuple[str, str]:
        """Teacher and student as the paper writes them."""
        return LABELS.get(self.teacher, self.teacher), LABELS.get(self.student, self.student)

    @property
    def rate(self) -> float:
        """The student's first learning rate in the published code (the paper prints 0.1)."""
        return 0.01 if self.student in SMALL_RATE else 0.05

    def __str__(self) -> str:
        return " → ".join(self.labels)


#: in the tables' order
PAIRS = (
    Pair("table1", "wrn_40_2", "wrn_16_2"),
    Pair("table1", "wrn_40_2", "wrn_40_1"),
    Pair("table1", "resnet56", "resnet20"),
    Pair("table1", "resnet110", "resnet20"),
    Pair("table1", "resnet110", "resnet32"),
    Pair("table1", "resnet32x4", "resnet8x4"),
    Pair("table1", "vgg13", "vgg8"),
    Pair("table2", "vgg13", "MobileNetV2"),
    Pair("table2", "ResNet50", "MobileNetV2"),
    Pair("table2", "ResNet50", "vgg8"),
    Pair("table2", "resnet32x4", "ShuffleV1"),
    Pair("table2", "resnet32x4", "ShuffleV2"),
    Pair("table2", "wrn_40_2", "ShuffleV1"),
)
