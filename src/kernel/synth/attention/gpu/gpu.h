// Attention of thread blocks (flash attention): a tile of queries against tiles of keys and values through matrix
// instructions, and its gradient.
//
// May include: base, kernel/synth/attention, kernel/synth/mma, kernel/synth/step, number/facts.
#pragma once

#include "kernel/synth/attention/gpu/attend_block.h"
