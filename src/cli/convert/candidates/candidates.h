// Formats that `lumen quantize --budget` chooses among. Proved by tests/cli/convert/candidates/candidates_test.cpp.
//
// May include: base, cli, model/compress/choose, number/library, run/engine.
#pragma once

#include <string>
#include <vector>

#include "model/compress/choose/budget.h"
#include "number/library/library.h"

namespace lumen::cli {

// Names of --candidates that stand for several formats.
constexpr const char *kGgufCandidates = "gguf",  // the default: every format with a GGUF type
    *kAnyCandidates = "any";                     // also formats that Lumen alone reads

// The named formats, and those of the two groups above without formats of more than 16 bits. A group leaves out what
// has less than half of the bits that `budget` allows: predictions of such errors are unreliable. kAnyCandidates also
// leaves out a format if another of at most as many bits has smaller errors on random weights and fits all rows that it
// fits. Error (usage) for a name that is unknown or cannot encode. `weights`: of the model.
std::vector<FormatRef> candidates_of(const FormatLibrary& formats, const std::vector<std::string>& names,
                                     const model::compress::Budget& budget, int64_t weights);

// Error as above.
void check_candidates(const FormatLibrary& formats, const std::vector<std::string>& names);

// The formats of `all` that no other of them beats, as above.
std::vector<FormatRef> without_beaten(const std::vector<FormatRef>& all);

}  // namespace lumen::cli
