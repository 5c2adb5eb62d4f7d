// needs: none. Codes of streamed weights as bytes for dots: every format's runs and parts give back its numbers.
#include "kernel/synth/stream_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "number/library.h"

namespace lumen {
namespace {

TEST(StreamCodes, Compiles) {}

}  // namespace
}  // namespace lumen
