// Encodes blocks on machines with waves: lanes share a block, each has some of its adjacent numbers; they fit its
// fields together and write their codes to its record. Equal to the codec bit for bit. Proved by
// tests/kernel/synth/encode_lanes_test.cpp.
#pragma once

#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

// The kernel of encode_blocks; false, with nothing written, if lanes cannot share: the machine has no waves, the fit of
// a block needs more than a magnitude, fields are supplied, or a lane's codes are not whole bytes.
bool encode_blocks_by_lanes(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target);

}  // namespace lumen::synth
