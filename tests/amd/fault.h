// What ends an execution: code that does what the hardware forbids or leaves open, or that the interpreter does not
// know.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lumen::amd {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... A>
[[noreturn]] void fault(fmt::format_string<A...> text, A&&... a) {
  throw Fault(fmt::format(text, std::forward<A>(a)...));
}

}  // namespace lumen::amd
