// The order of elements between memory and registers: lanes, fragments of matrix instructions, shuffles, transposes,
// and products factored into integers.
//
// May include: base, kernel/loop, kernel/machine, kernel/synth/unpack, number/facts, number/format, number/formula.
// Offers: pairs.h.
#pragma once

#include "kernel/synth/order/factor.h"
#include "kernel/synth/order/fragment_order.h"
#include "kernel/synth/order/lane_order.h"
#include "kernel/synth/order/lane_pass.h"
#include "kernel/synth/order/stream_codes.h"
#include "kernel/synth/order/stream_factor.h"
#include "kernel/synth/order/transpose.h"
