// Kernels read from text, and what is said of those that are refused.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "kernel/loop/text.h"

namespace lumen {

inline loop::Kernel parse(const std::string& text) {
  return loop::parse_kernel(std::make_shared<Source>(Source{"test", text}));
}

inline std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace lumen
