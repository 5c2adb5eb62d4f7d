#include "base/speaker.h"

#include <fmt/format.h>

namespace lumen {
namespace {

int own = -1;

}  // namespace

void speak_as(int rank) {
  own = rank;
}
bool is_hushed() {
  return own > 0;
}
std::string speaker_name() {
  return is_hushed() ? fmt::format("rank {}: ", own) : std::string();
}

}  // namespace lumen
