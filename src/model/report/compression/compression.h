// Report on the compression of a model, or a comparison of several models: a JSON document, and a self-contained HTML
// page of it. The document's form: docs/guide/compression.md.
//
// May include: base, base/structured, model/report.
#pragma once

#include "model/report/compression/compression_page.h"
#include "model/report/compression/compression_report.h"
