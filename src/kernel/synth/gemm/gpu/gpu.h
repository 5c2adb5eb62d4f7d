// GEMM on GPUs: tiles of thread blocks through shared memory, stream-K and split-K, persistent blocks.
//
// May include: base, graph/group, kernel/loop, kernel/synth/encode, kernel/synth/gemm, kernel/synth/gemm/operand,
// kernel/synth/gemm/skinny, kernel/synth/mma, kernel/synth/order, kernel/synth/reduce, kernel/synth/step,
// kernel/synth/unpack.
// Offers: block_fill.h, block_write.h, dot_block_merge.h, dot_block_plan.h.
#pragma once

#include "kernel/synth/gemm/gpu/dot_block.h"
