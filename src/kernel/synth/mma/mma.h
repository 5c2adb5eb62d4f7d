// The matrix product of a thread block: panels in shared memory, multiplied by any matrix instruction that the machine
// has.
//
// May include: base, kernel/loop, kernel/machine, kernel/synth/order.
#pragma once

#include "kernel/synth/mma/block_product.h"
#include "kernel/synth/mma/fragment_digits.h"
