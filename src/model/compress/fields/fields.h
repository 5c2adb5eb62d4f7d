// End-to-end recovery of a rounded model (EfficientQAT's E2E-QP, Chen et al. 2024, arXiv 2407.11062): codes stay fixed;
// scales of groups and vectors of floats are trained over the whole model.
//
// May include: base, base/file, base/sealed, base/structured, base/threads, graph/ir, model/arch, model/calibrate,
// model/compress, model/compress/recover, number/codec, number/format.
#pragma once

#include "model/compress/fields/field_recovery.h"
#include "model/compress/fields/scale_fields.h"
