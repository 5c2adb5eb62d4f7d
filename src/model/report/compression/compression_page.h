// The page of a compressed model: size against quality, errors by layer, a map of formats, weights before and after,
// the reason for each tensor's format, and the cost. Everything from the document is escaped. Proved by
#pragma once

#include <string>

#include "model/report/compression/compression_report.h"

namespace lumen::model {

std::string html_report(const CompressionReport& report);
// The main figures as text, for a terminal.
std::string text_report(const CompressionReport& report);

}  // namespace lumen::model
