// From a format's declaration to a Format, in three steps: attributes and fields, routines, text. Used by
// format_reader.cpp.
#pragma once

#include "number/read/routine_builder.h"

namespace lumen::read {

// Instantiation of a declaration: values of its parameters, and the alias that names the result, if any.
struct Instance {
  const lang::FormatDecl& declaration;
  const lang::FormatAlias* alias = nullptr;
};

Format read_instance(Names& names, const Instance& instance);

// Reads fields of all levels with layouts, record sizes, the code field. Needs format.block and the tile size.
void read_fields(FormatContext& context, const lang::FormatDecl& declaration);
FieldType read_field_type(FormatContext& context, const lang::TypeExpr& type);

// decode, code and the fits.
void read_routines(FormatContext& context, const lang::FormatDecl& declaration);

}  // namespace lumen::read
