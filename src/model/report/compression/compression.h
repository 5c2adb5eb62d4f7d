// What compressing a model did, or how several models compare: one JSON document, and of it one HTML page without
// scripts that needs nothing beside itself. The document's form: docs/guide/compression.md.
//
// May include: base, base/structured, model/report.
#pragma once

#include "model/report/compression/compression_page.h"
#include "model/report/compression/compression_report.h"
