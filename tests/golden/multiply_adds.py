"""What PyTorch counts for single layers, with its FlopCounterMode: half of the floating-point operations."""

import json

import torch
from torch.utils.flop_counter import FlopCounterMode


def count(m, *x):
    with FlopCounterMode(display=False) as c:
        m(*x)
    return c.get_total_flops() // 2


o = {}
o["dense"] = count(torch.nn.Linear(5, 8), torch.zeros(1, 3, 5))
o["conv2d"] = count(torch.nn.Conv2d(4, 6, 3, stride=2, groups=2), torch.zeros(1, 4, 7, 9))
o["conv1d"] = count(torch.nn.Conv1d(3, 5, 4, dilation=2), torch.zeros(1, 3, 12))
o["conv_transpose2d"] = count(torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), torch.zeros(1, 4, 5, 5))
q = torch.nn.MultiheadAttention(8, 2, batch_first=True)
x = torch.zeros(1, 5, 8)
o["multi_head_attention"] = count(lambda x: q(x, x, x, need_weights=True), x)
print(json.dumps(o))
