// The page of a compressed model: size against quality, errors by layer, a map of formats, weights before and after,
// why each tensor got what it got, and what it cost. Everything from the document is escaped. Proved by
// tests/model/report/compression/compression_page_test.cpp.
#pragma once

#include <string>

#include "model/report/compression/compression_report.h"

namespace lumen::model {

std::string html_report(const CompressionReport& report);
// The main figures for a terminal.
std::string text_report(const CompressionReport& report);

}  // namespace lumen::model
