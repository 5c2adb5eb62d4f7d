// GEMV and skinny GEMM on GPUs: few rows of activations, so that reading the weight is the cost. It is unpacked on the
// way into registers.
//
// May include: base, kernel/machine, kernel/synth/gemm, kernel/synth/mma, kernel/synth/order, kernel/synth/step,
// kernel/synth/unpack, number/formula.
// Offers: skinny_mma_plan.h.
#pragma once

#include "kernel/synth/gemm/skinny/skinny_dot.h"
#include "kernel/synth/gemm/skinny/skinny_mma.h"
#include "kernel/synth/gemm/skinny/weight_stages.h"
