// Blocks of codes where lanes step together in waves: lanes share a block, each has some of its numbers beside each
// other, they fit its fields together and write their codes into its record. The bits are the codec's. Proved by
// tests/kernel/synth/encode_lanes_test.cpp.
#pragma once

#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

// The kernel of encode_blocks; false, and nothing is written, where lanes share nothing: the machine has no waves, the
// fit of a block asks for more than a magnitude, fields are supplied, or codes of neighbours share a byte with others.
bool encode_blocks_by_lanes(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target);

}  // namespace lumen::synth
