// GEMM on GPUs whose matrix instructions read one factor from registers and the other from shared memory: a packed
// weight is unpacked straight into the registers, and only activations use the bandwidth of shared memory.
//
// May include: base, kernel/synth/gemm, kernel/synth/gemm/gpu, kernel/synth/gemm/skinny, kernel/synth/mma,
// kernel/synth/step.
#pragma once

#include "kernel/synth/gemm/held/held_plan.h"
#include "kernel/synth/gemm/held/held_product.h"
#include "kernel/synth/gemm/held/held_rows.h"
