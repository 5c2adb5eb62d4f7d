// The page of a compressed model, which page.html draws from the document, and a table for a terminal. Proved by
// tests/model/report/compression/compression_page_test.cpp.
#pragma once

#include <string>

#include "model/report/compression/compression_report.h"

namespace lumen::model::report {

std::string html_report(const CompressionReport& report);
// Figures of each model, tasks and notes.
std::string text_report(const CompressionReport& report);

}  // namespace lumen::model::report
