// Transcendental operations in terms of basic ones, so that every lane count, machine and the evaluator compute the
// same bits. exp and log stay below 2 ulp; sin, cos and pow of f32 go through f64. sin and cos are NaN from |x| = 2^50
// on.
#pragma once

#include "kernel/loop/loop.h"

namespace lumen::loop {

bool is_transcendental(ScalarOp op);

// The operation as a formula over inputs of type s.
const Formula& expansion(ScalarOp op, Scalar s);

// The kernel with every transcendental operation replaced by its formula.
Kernel expand(const Kernel& k);

}  // namespace lumen::loop
