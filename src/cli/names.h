// Names for help texts, asked from the library: no command knows a format or a family by name.
#pragma once

#include <cstdint>
#include <string>

#include "model/arch/family.h"

namespace lumen::cli {

// The format of GGUF files whose bits per weight are nearest to `bits`; "TYPE" when there is none.
std::string example_format(double bits);
// "Formats: a b c ..." and "Mixtures: ..." in lines of at most `width` characters.
std::string format_names(size_t width = 110);
// The named size whose number of weights is nearest.
std::string example_size(double weights);
std::string size_names();

}  // namespace lumen::cli
