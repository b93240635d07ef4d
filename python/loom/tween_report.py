"""The public path of what was found about each layer, as a table; see `loom.measuring.report`."""

from loom.measuring.report import LayerReport, TweenReport, bottleneck_message, mean_budgets

__all__ = ["LayerReport", "TweenReport", "bottleneck_message", "mean_budgets"]
