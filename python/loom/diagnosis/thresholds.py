"""Where a finding begins, and why there. They are chosen so that sound trainings hear nothing."""

from __future__ import annotations

# What is looked at

SAMPLE_ROWS = 256
"""Rows that are looked at: a quantile of a column is then known to within 3 %."""

SAMPLE_ELEMENTS = 1 << 15
"""Elements that are looked at in all: a fraction of a millisecond."""

PASS_ELEMENTS = 1 << 24
"""Elements that the widest layer of a pass over a sample may make: 64 MiB; as in training a batch may be
larger."""

LABEL_ELEMENTS = 1 << 18
"""Labels that are counted; of more a sample."""

FEW_ROWS = 16
"""Fewer rows say nothing about the data's distribution."""

# Data

IMAGE_EXTENT = 8
"""The least height and width of what is taken for an image; pictures of three pixels are none."""

LARGE_INPUT = 20.0
"""Root mean square of inputs. Initial weights expect about 1; standardised data and pixels in 0..1 are below
2, scikit-learn's digits in 0..16 are at 8 and still learn, pixels in 0..255 are at 80 and more."""

SMALL_INPUT = 1e-3
"""Largest magnitude of inputs, below which weights would have to grow a thousandfold."""

COLUMN_RATIO = 100.0
"""The largest column's root mean square over the smallest's: gradients differ by its square."""

DENSE_COLUMN = 0.5
"""The share of numbers other than 0 from which a column's scale is compared: pixels at the edge and one-hot
columns are mostly 0 and are left out."""

TABLE_COLUMNS = 256
"""More columns than this are no table of features: constant and equal ones are then ordinary."""

LARGE_TARGET = 100.0
"""Root mean square of regression targets. An output begins near 0 and moves by about the learning rate a step
with Adam: to get to 100 at 1e-3 takes 100,000 steps. Gradients of mse grow with it as well."""

SMALL_TARGET = 1e-3
"""Largest magnitude of regression targets, below which an initial output is a thousand times larger."""

OUT_OF_REACH = 0.01
"""The share of targets beyond what an activation can give; fewer may be outliers."""

TURNED_SERIES = 4
"""Channels over moments, from which a series is most likely (steps, features), turned around."""

FORGETFUL = 0.5
"""The share of the newest batch in running statistics, from which they are hardly more than its own."""

# Labels

IMBALANCE = 10.0
"""The commonest class over the rarest: accuracy then hides the rare one."""

FEW_LABELS = 20
"""Different whole numbers, from 0 and without gaps, that may be labels of classes."""

ROWS_A_LABEL = 4
"""How often such numbers occur on average where they are labels and not measurements."""

VALIDATION_ROWS_A_CLASS = 10
"""With fewer validation rows for each class it is chance that one of them is missing."""

# Units and gradients

PASSIVE_SHARE = 0.4
"""The share of a layer's units that are dead or saturated. Of fresh layers with He's or Xavier's weights it
is below 0.1; Maas et al. 2013 saw up to 0.4 of trained ones and called that unhealthy."""

SATURATED = 0.02
"""How near to its bounds, as a share of their distance, a saturated unit is: its slope is below 8 % of the
largest."""

SATURATED_SAMPLES = 0.95
"""The share of samples in which a saturated unit is that near."""

VANISHING = 1e-4
"""A layer's gradient, as root mean square over its weights, beside that of the layer with the largest. Sound
networks are above 1e-2; each layer of sigmoids multiplies it by a quarter at most."""

EXPLODING = 1e3
"""The L2 norm of a layer's gradient, as in `Network.gradient_stats`."""

# The loss, and steps

START_LOSS = 3.0
"""How many times the loss of guessing a loss may start at: with scaled inputs logits have a variance of about
1, and it is below 1.5 times."""

START_REGRESSION = 30.0
"""The same of mse beside the targets' variance; that of an output is often several times as large."""

DRY_STEPS = 12
"""Steps of the dry run: a rate that is ten times too large shows within five."""

DRY_GROWTH = 2.0
"""How many times its start the loss of the batch that is learned may reach in the dry run."""

DRY_CHANGE = 1e-4
"""The share of its start by which the loss of that batch has to change: at 1e-3 Adam changes it by some %."""

DUPLICATES = 0.01
"""The share of validation rows that are in the training data as well; below it is chance in small
tables of whole numbers."""
