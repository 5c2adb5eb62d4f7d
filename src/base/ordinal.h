// The number of an enumerator, for table indices, files and keys.
#pragma once

#include <type_traits>

namespace lumen {

template <typename E>
constexpr int ordinal(E e) {
  static_assert(std::is_enum_v<E>);
  return static_cast<int>(e);
}

}  // namespace lumen
