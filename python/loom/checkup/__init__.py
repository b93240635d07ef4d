"""What is wrong with a training before it begins: `loom.doctor`."""

from loom.checkup.examination import doctor

__all__ = ["doctor"]
