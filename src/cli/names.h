// Names for help texts, read from the library, so that no command has a format's or family's name in its code.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "model/arch/family/family.h"
#include "model/infer/session/session.h"

namespace lumen::cli {

// The GGUF format whose bits per weight are nearest to `bits`; "TYPE" when there is none.
std::string example_format(double bits);
// "Formats: a b c ..." and "Mixtures: ..." in lines of at most `width` characters.
std::string format_names(size_t width = 110);
// Options for the format of a session's key-value cache.
struct CacheTypes {
  std::string keys, values;
  void add_flags(CLI::App& app);
  void choose(const model::arch::Library& library,
              model::infer::SessionOptions* options) const;  // Error with the nearest names
};
// --narrow: how the candidates for a token are found; default `auto`.
void add_narrow_flag(CLI::App& app, model::infer::Narrow* narrow);
// The named model size nearest to this number of weights.
std::string example_size(double weights);
std::string size_names();
// The format that a word of the command line names. An unknown name is a usage error (exit 2) with the nearest names.
FormatRef named_format(const FormatLibrary& formats, const std::string& name);

}  // namespace lumen::cli
