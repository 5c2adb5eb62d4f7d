// GEMM in tasks, for processors: register tiles of f32, integer and 16-bit dot products, matrix units. Kernels for few
// rows along K also run on GPUs.
//
// May include: base, kernel/machine, kernel/synth/gemm, kernel/synth/gemm/operand, kernel/synth/order,
// kernel/synth/step, kernel/synth/unpack, number/formula.
// Offers: product_writer.h.
#pragma once

#include "kernel/synth/gemm/cpu/dot_integer.h"
#include "kernel/synth/gemm/cpu/dot_matrix.h"
#include "kernel/synth/gemm/cpu/dot_rows.h"
#include "kernel/synth/gemm/cpu/dot_short.h"
#include "kernel/synth/gemm/cpu/dot_tile.h"
