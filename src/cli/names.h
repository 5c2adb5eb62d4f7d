// Names for help texts, asked from the library: no command knows a format or a family by name.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "model/arch/family/family.h"
#include "model/infer/session/session.h"

namespace lumen::cli {

// The format of GGUF files whose bits per weight are nearest to `bits`; "TYPE" when there is none.
std::string example_format(double bits);
// "Formats: a b c ..." and "Mixtures: ..." in lines of at most `width` characters.
std::string format_names(size_t width = 110);
// Flags that choose how a session's cache is held, and what they mean in the end.
struct CacheTypes {
  std::string keys, values;
  void add_flags(CLI::App& app);
  void choose(const model::Library& library, model::SessionOptions* options) const;  // Error with the nearest names
};
// --narrow: where the candidates for a token are found; `auto` at first.
void add_narrow_flag(CLI::App& app, model::Narrow* narrow);
// The named size whose number of weights is nearest.
std::string example_size(double weights);
std::string size_names();
// A format that a word of the command line names; the Error for an unknown one is one of usage, as for other words.
FormatRef named_format(const FormatLibrary& formats, const std::string& name);

}  // namespace lumen::cli
