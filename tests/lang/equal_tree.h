// Equality of syntax trees, places left out.
#pragma once

#include "lang/ast.h"

namespace lumen::lang {

bool equal(const ExprPtr& a, const ExprPtr& b);
bool equal(const File& a, const File& b);

}  // namespace lumen::lang
