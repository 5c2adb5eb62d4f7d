// Adds the file name to errors. Low-level code, such as the parser of a family's text or a grammar, does not have the
// path of the user's file; the code that opened the file adds it here. Proved by tests/base/naming_test.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace lumen {

// Returns the result of `deed`. An Error from it without `file` in the message gets it as a prefix; code and hint stay.
template <typename Deed>
auto naming(const std::filesystem::path& file, Deed&& deed) {
  try {
    return deed();
  } catch (const Error& e) {
    const std::string message = e.what();
    if (message.find(file.filename().string()) != std::string::npos) throw;
    throw Error(e.code(), fmt::format("{}: {}", file.string(), message), e.hint());
  }
}

}  // namespace lumen
