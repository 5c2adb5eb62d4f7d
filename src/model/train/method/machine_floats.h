// 8-bit floats chosen by the machine that multiplies them: a recipe names machine_e4m3 (or machine_e5m2; the suffix
// _tensor or _row adds one f32 scale per tensor or per row). Before anything is computed, a run replaces the name by
// the format whose codes the device's matrix instructions read. The choice follows from the machine's table and the
// formats' declarations; without such instructions it is the format with the bias of IEEE 754. The checkpoint's recipe
// records the choice. Proved by tests/model/train/method/machine_floats_test.cpp.
#pragma once

#include <functional>
#include <string>

#include "model/recipe/recipe.h"

namespace lumen::model::train {

// Whether a machine's matrix instructions read the codes of an 8-bit float.
using Multiplies = std::function<bool(const FieldType&)>;

// The format that a name stands for; other names are returned unchanged. Error when no such machine float exists.
std::string machine_float(const std::string& name, const Multiplies& multiplies, const FormatLibrary& formats);
// Resolves all format names of a recipe: products, precision, and cached values. `said`, if not null, receives a
// printable list of the replacements; it stays empty when there are none.
recipe::Recipe with_machine_floats(recipe::Recipe recipe, const Multiplies& multiplies, const FormatLibrary& formats,
                                   std::string* said = nullptr);
// Printable: formats of the recipe's products that this machine does not multiply, although it multiplies 8-bit floats
// with the same exponent and mantissa widths. Empty: none.
std::string other_floats(const recipe::Recipe& recipe, const Multiplies& multiplies, const FormatLibrary& formats);

}  // namespace lumen::model::train
