// 8-bit floats by the machine they are multiplied on: a recipe names machine_e4m3 (or machine_e5m2; with _tensor or
// _row behind, under one f32 scale for the tensor or for each row), and a run takes the format whose codes its device's
// matrix instructions read, before anything is computed. Which one is a fact of the machine's table and of the formats'
// own declarations; where the machine has none, it is the one with the bias of IEEE 754. What was taken stands in the
// checkpoint's recipe. Proved by tests/model/train/method/machine_floats_test.cpp.
#pragma once

#include <functional>
#include <string>

#include "model/recipe/recipe.h"

namespace lumen::model {

// Whether matrix instructions of a machine read the codes of an 8-bit float.
using Multiplies = std::function<bool(const FieldType&)>;

// The format that a name means; the name itself where it asks for no machine's. Error when it asks for one there is
// not.
std::string machine_float(const std::string& name, const Multiplies& multiplies, const FormatLibrary& formats);
// All names of a recipe's products, its precision, and what it keeps. `said`, when given, receives for people what was
// taken for what; it stays empty where nothing was.
Recipe with_machine_floats(Recipe recipe, const Multiplies& multiplies, const FormatLibrary& formats,
                           std::string* said = nullptr);
// For people: which formats of a recipe's products are not what this machine multiplies, though it multiplies 8-bit
// floats of the same digits. Empty: none.
std::string other_floats(const Recipe& recipe, const Multiplies& multiplies, const FormatLibrary& formats);

}  // namespace lumen::model
