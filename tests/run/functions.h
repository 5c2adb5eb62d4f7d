// Functions of the language for the tests of the engine.
#pragma once

#include <filesystem>
#include <string>

#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "graph/pass/pass.h"
#include "lang/parser.h"

namespace lumen::run {

// The last function of a text, which may call those before it and the library's; without calls.
inline graph::Graph function_of(const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
  const lang::File library = lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  graph::Scope scope;
  scope.files = {&library, &file};
  graph::Graph g = graph::elaborate_function(scope, file.functions.back());
  graph::inline_calls(g);
  return g;
}

}  // namespace lumen::run
