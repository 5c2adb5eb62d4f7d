#include "apps/draws/draws.h"

#include <cmath>
#include <initializer_list>

namespace lumen {

Draws::Draws(uint64_t seed, uint64_t first, uint64_t second) : state_(seed) {
  for (const uint64_t more : {first, second}) state_ = next() ^ (more * 0xd1342543de82ef95 + 1);
}
uint64_t Draws::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}
int64_t Draws::below(int64_t bound) {
  const uint64_t range = bound, most = ~uint64_t{0} - ~uint64_t{0} % range;
  uint64_t drawn = next();
  while (drawn >= most) drawn = next();
  return drawn % range;
}
double Draws::uniform() {
  return (next() >> 11) * 0x1p-53;
}
double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

}  // namespace lumen
