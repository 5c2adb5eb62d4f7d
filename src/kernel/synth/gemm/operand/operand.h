// Preparation of a product's operand by an earlier step: rows rounded or quantized in the order of the weight, or the
// whole operand in the type that block kernels multiply.
//
// May include: base, graph/match, kernel/machine, kernel/synth/gemm, kernel/synth/mma, kernel/synth/order,
// kernel/synth/step, kernel/synth/unpack, number/facts.
#pragma once

#include "kernel/synth/gemm/operand/coded_rows.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "kernel/synth/gemm/operand/operand_layout.h"
#include "kernel/synth/gemm/operand/operand_step.h"
#include "kernel/synth/gemm/operand/pack_step.h"
#include "kernel/synth/gemm/operand/row_scales.h"
