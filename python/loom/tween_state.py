"""The public path of learning by targets call by call, and of feedback maps; see `loom.tweening`."""

from loom.tweening.config import check_tween
from loom.tweening.feedback import FeedbackMap, FeedbackMaps
from loom.tweening.state import TweenState

__all__ = ["FeedbackMap", "FeedbackMaps", "TweenState", "check_tween"]
