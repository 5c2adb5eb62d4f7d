// Where the weights of a running model are stored: in the mapped file, or in allocated memory (--no-mmap).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/command.h"
#include "model/arch/checkpoint/read.h"

namespace lumen::cli {

struct Mapping {
  bool is_mapped = true;
  void add_flags(CLI::App& app);
  model::arch::Model read(const Shared& shared, const model::arch::LibraryRef& library, const std::string& file) const;
};

}  // namespace lumen::cli
