// Errors name the file they are about. Deep below, where a family's text or a grammar is read, nobody knows which of
// the user's files the numbers came from; whoever opened it says so here. Proved by tests/base/naming_test.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace lumen {

// What `deed` returns. An Error it throws that does not name `file` yet gets its name in front; code and hint stay.
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
